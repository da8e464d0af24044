"""The errors of this package. ``SpecdecError`` is their base class. Each message says what was found and what to do.

An error is made from at most one text, so that it can be pickled and raised again in another process.
"""

import re
import reprlib
from collections.abc import Mapping

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def quoted(value: object) -> str:
    """The ``repr`` of a value that somebody gave, cut to about 80 characters, for a message."""
    return _SHORT.repr(value)


def identified(value: object) -> str:
    """What somebody gave in the place of something else, for a message: a name or a number itself, else its class."""
    plain = value is None or isinstance(value, (str, bytes, int, float))
    return quoted(value) if plain else f"a {type(value).__name__}"


class SpecdecError(Exception):
    """The base class: something that specdec refuses to do."""


class NotNumbers(SpecdecError, ArithmeticError):
    """A model gave NaN or infinity as logits. Nothing can be chosen from them. Made with the model's role."""

    # The sentences of this class and the next two are not their arguments, so that they survive being pickled.
    def __str__(self) -> str:
        return (
            f"The {self.args[0]}'s logits hold NaN or infinity. Its number type may be too narrow (float16), or its "
            "weights are damaged; try float32 or bfloat16, or fetch the weights again."
        )


class OutOfMemory(SpecdecError):
    """The device had too little memory for a call. The memory that the call held is free again."""

    def __str__(self) -> str:
        return (
            "There is too little memory for this call; what it used is free again. Ask for fewer new tokens, "
            "shorten the prompt, or load a smaller pair."
        )


class DeviceLost(SpecdecError):
    """A GPU no longer computes anything for this process. Made with the first line of its error."""

    def __str__(self) -> str:
        return (
            f"The GPU reported an error ({self.args[0]}) and no longer works for this program. Start the program again."
        )


class GrammarStuck(SpecdecError):
    """No token of the model can follow the text so far under the call's grammar."""

    def __str__(self) -> str:
        return (
            "The grammar allows no token after the text so far, because the model's tokens cannot spell what must "
            "follow. Change the grammar, or take another model."
        )


class InvalidInput(SpecdecError, ValueError):
    """A prompt, a draft length or a setting cannot be used. Nothing ran, unless a policy gave a bad length later."""


class BadSetting(InvalidInput):
    """The value of a setting cannot be used. The message names the setting as Python does: ``max_new_tokens is 0``."""


def with_names(error: Exception, names: Mapping[str, str]) -> str:
    """The message of an error, for a page or a command that has its own names for settings.

    ``names`` are by the name of a setting in Python. Of a ``BadSetting`` the first of them is replaced; every other
    message stays as it is.
    """
    if not names or not isinstance(error, BadSetting):
        return str(error)
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], str(error), count=1)


class IncompatiblePair(SpecdecError, ValueError):
    """A target cannot decode with a draft, or with its own cache."""


class LoadFailed(SpecdecError, RuntimeError):
    """A model or a tokenizer could not be loaded."""


class LibraryChanged(SpecdecError):
    """An installed library lacks a private name that specdec uses, because its version is not one that was tested."""


class ServerFailed(SpecdecError, RuntimeError):
    """A server that somebody else runs cannot be reached, or did not answer as it should."""
