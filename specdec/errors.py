"""The tree of errors: catch ``SpecdecError`` for all of them. Every message says what was found and what to do.

Each is made with its message alone, so that it can be pickled and arrives in another process as it was.
"""

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def quoted(value: object) -> str:
    """The ``repr`` of what somebody gave, cut to about 80 characters, for a sentence about it."""
    return _SHORT.repr(value)


class SpecdecError(Exception):
    """Anything specdec refuses to do."""


class NotNumbers(SpecdecError, ArithmeticError):
    """A model whose logits hold NaN or infinity, which can be neither compared nor drawn from. Named by its role."""

    # The sentences of this class and the next two are not their arguments, so that they survive being pickled.
    def __str__(self) -> str:
        return (
            f"The {self.args[0]}'s logits hold NaN or infinity. Its number type may be too narrow (float16), or its "
            "weights are damaged; try float32 or bfloat16, or fetch the weights again."
        )


class OutOfMemory(SpecdecError):
    """A call for which the device had too little memory; what it held is given back."""

    def __str__(self) -> str:
        return (
            "There is too little memory for this call; what it used is free again. Ask for fewer new tokens, "
            "shorten the prompt, or load a smaller pair."
        )


class DeviceLost(SpecdecError):
    """A GPU that computes nothing any more for this process. Made with the first line of its error."""

    def __str__(self) -> str:
        return (
            f"The GPU reported an error ({self.args[0]}) and no longer works for this program. Start the program again."
        )


class InvalidInput(SpecdecError, ValueError):
    """A prompt, a draft length or a sampling value that cannot be used; nothing ran."""


class IncompatiblePair(SpecdecError, ValueError):
    """A target and a draft (or a cache) that cannot decode together."""


class LoadFailed(SpecdecError, RuntimeError):
    """A model or tokenizer that could not be loaded."""
