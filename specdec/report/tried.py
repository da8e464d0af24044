"""Where the graph engine has run. ``python -m benchmarks.gpu --write DIR`` writes this module from its results."""

GRAPHS_TRIED = "The graph engine has not been run on a GPU so far."
