"""Long checks of a served page, outside the ordinary suite: ``python -m tests.load [part ...]``."""
