"""The ways to draft, a file each."""
