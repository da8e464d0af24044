"""Results of a sweep or a benchmark: their records and their file."""
