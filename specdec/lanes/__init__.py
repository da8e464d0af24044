"""Who decodes: every lane as the same stream of events, and races between them."""
