"""The tree of errors: catch ``SpecdecError`` for all of them. Every message says what was found and what to do."""


class SpecdecError(Exception):
    """Anything specdec refuses to do."""


class InvalidInput(SpecdecError, ValueError):
    """A prompt, a draft length or a sampling value that cannot be used; nothing ran."""


class IncompatiblePair(SpecdecError, ValueError):
    """A target and a draft (or a cache) that cannot decode together."""


class LoadFailed(SpecdecError, RuntimeError):
    """A model or tokenizer that could not be loaded."""
