"""Pairs of models: what they are, whether they fit, and how they are loaded."""
