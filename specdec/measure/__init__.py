"""From events to figures: metrics, repeated trials, sweeps and benchmarks."""
