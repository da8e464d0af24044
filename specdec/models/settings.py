"""The names among which the settings of a pair choose. Loads without torch, for the parser of the command line."""

from __future__ import annotations

ENGINES = ("auto", "eager", "graph")
DTYPES = ("float32", "bfloat16", "float16")
