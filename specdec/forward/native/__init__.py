"""Passes in C, compiled on the machine that runs them. Without a compiler everything runs by torch's kernels."""
