"""The tree of errors: catch ``SpecdecError`` for all of them. Every message says what was found and what to do.

Each is made with its message alone, so that it can be pickled and arrives in another process as it was.
"""

from typing import Self


class SpecdecError(Exception):
    """Anything specdec refuses to do."""


class NotNumbers(SpecdecError, ArithmeticError):
    """A model whose logits hold NaN or infinity, which can be neither compared nor drawn from."""

    @classmethod
    def of(cls, whose: str) -> Self:
        """The error of the model that is named."""
        return cls(
            f"The {whose}'s logits hold NaN or infinity. Its number type may be too narrow (float16), or its weights "
            "are damaged; try float32 or bfloat16, or fetch the weights again."
        )


class InvalidInput(SpecdecError, ValueError):
    """A prompt, a draft length or a sampling value that cannot be used; nothing ran."""


class IncompatiblePair(SpecdecError, ValueError):
    """A target and a draft (or a cache) that cannot decode together."""


class LoadFailed(SpecdecError, RuntimeError):
    """A model or tokenizer that could not be loaded."""
