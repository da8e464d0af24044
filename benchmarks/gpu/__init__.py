"""Measures everything on a GPU in a few minutes: ``python -m benchmarks.gpu --out DIR``; see ``__main__``."""
