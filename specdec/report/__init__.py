"""From figures to sentences, tables and recordings."""
