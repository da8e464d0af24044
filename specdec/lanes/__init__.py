"""Lanes: every way to decode as the same stream of events, and races between them."""
