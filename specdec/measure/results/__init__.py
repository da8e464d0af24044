"""Results of a sweep or a benchmark: their records, their file, and the link that holds them."""
