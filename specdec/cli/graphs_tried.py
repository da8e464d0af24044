"""Where the graph engine has run. ``python -m benchmarks.gpu --write DIR`` writes this module from its results."""

GRAPHS_TRIED = (
    "The graph engine has run on NVIDIA H200, with torch 2.11.0: 55 of 55 of its greedy texts are those of generate."
)
