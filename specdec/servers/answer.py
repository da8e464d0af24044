"""What is asked of a server, and what it answered, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.errors import ServerFailed
from specdec.events import FinishReason, SamplingParams
from specdec.facts import Exactness

# An answer that something holds back, such as a proxy, comes at one moment. No server writes a single text so fast.
HELD_SECONDS, HELD_TOKENS, FASTEST = 0.1, 8, 10_000  # seconds until it came, its tokens, tokens per second
Chat = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: a prompt as text or as chat messages, the settings, and the deadline in seconds."""

    prompt: str | Chat
    params: SamplingParams
    seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of the stream added, or several that belong together.

    - ``seconds``: since the request was sent.
    - ``ids``: None if it told none.
    - ``count``: how many tokens it added; None if it told neither that nor ids.
    """

    seconds: float
    text: str
    ids: tuple[int, ...] | None
    count: int | None = None

    @property
    def tokens(self) -> int | None:
        return self.count if self.ids is None else len(self.ids)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine that checked guesses: how many it made and how many of them it kept."""

    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine counted: the steps that checked guesses, and the guesses it made and kept in them."""

    steps: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. A text may be empty; then there are no pieces.

    - ``prompt_ids``: None if the server did not tell them.
    - ``steps``: the engine's steps with guesses, in order; None if it did not tell them.
    - ``counts``: their sums; None if it did not tell them.
    - ``tokens``: how many tokens it says it wrote; None if it did not say.
    - ``most_guesses``: how many guesses a step makes at most (K); None if it did not tell.
    - ``seconds``: until the end of the stream.
    - ``began``: when the request was sent, on the clock (``perf_counter``).
    """

    prompt_ids: tuple[int, ...] | None
    pieces: tuple[Piece, ...]
    finish_reason: FinishReason
    seconds: float
    tokens: int | None = None
    steps: tuple[Step, ...] | None = None
    counts: Counts | None = None
    most_guesses: int | None = None
    began: float = 0.0

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The ids of all new tokens; None if one event told none."""
        found = [piece.ids for piece in self.pieces]
        return tuple(i for ids in found for i in ids or ()) if all(ids is not None for ids in found) else None

    @property
    def sizes(self) -> list[int]:
        """How many tokens each piece counts for.

        Where the server says that it wrote more tokens than its pieces tell, the pieces that do not tell theirs count
        for several in proportion to their length. The sum is then the server's own.
        """
        found = [piece.tokens or 1 for piece in self.pieces]
        untold = [at for at, piece in enumerate(self.pieces) if not piece.tokens]
        surplus = (self.tokens or 0) - sum(found)
        letters = sum(len(self.pieces[at].text) for at in untold)
        given = seen = 0
        for at in untold if letters and surplus > 0 else ():
            seen += len(self.pieces[at].text)
            more = max(0, round(surplus * seen / letters) - given)
            given += more
            found[at] += more
        return found

    @property
    def held_back(self) -> bool:
        """Whether it all came at one moment, long after the request, so that no seconds of single tokens are known."""
        if not self.pieces:
            return False
        first, tokens = self.pieces[0].seconds, sum(self.sizes)
        span = self.pieces[-1].seconds - first
        return first > HELD_SECONDS and tokens > HELD_TOKENS and span * FASTEST < tokens

    @property
    def exact(self) -> Exactness:
        """How much the server told of its rounds."""
        return "rounds" if self.steps is not None else "counts" if self.counts is not None else "speed"

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def require_written(answer: Answer, name: str) -> None:
    """Raise ``ServerFailed`` for an answer without text."""
    if not answer.pieces:
        raise ServerFailed(f"The server {name} wrote no text.")


def require_stream(answer: Answer, name: str) -> None:
    """Raise ``ServerFailed`` for an answer whose speed cannot be told: one without text, and one that was held back."""
    require_written(answer, name)
    if answer.held_back:
        raise ServerFailed(
            f"The server {name} sent its whole text at one moment, {answer.pieces[0].seconds:.2f} s after the request, "
            "so the seconds of its tokens are not known. Something on the way holds its stream back, such as a proxy; "
            "switch that off, or name the server's own address. Or this machine was too busy to read it: try again."
        )


def require_one_prompt(answers: Mapping[str, Answer]) -> None:
    """Raise ``ServerFailed`` where two servers, by name, read one prompt as other tokens."""
    told = [(name, answer.prompt_ids) for name, answer in answers.items() if answer.prompt_ids]
    for name, ids in told[1:]:
        first, its = told[0]
        if ids != its:
            raise ServerFailed(
                f"The servers {first} and {name} read the prompt as other tokens ({len(its or ())} and "
                f"{len(ids or ())} of them), so they cannot be compared. Start both with one model, its "
                "tokenizer and its template for chats."
            )


MOST_IDS = 1_000_000


def whole(value: Any, what: str, name: str, most: int = MOST_IDS) -> int:
    """``value`` as a count. Raises ``ServerFailed`` unless it is a whole number from 0 to ``most``."""
    if isinstance(value, float) and value.is_integer():  # some languages have one kind of number
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ServerFailed(f"The server {name} sent a value for {what} that is no count from 0 to {most:,}.")
    return value


def wholes(values: Any, what: str, name: str, most: int = MOST_IDS) -> tuple[int, ...]:
    """A list of counts. Raises ``ServerFailed`` for anything else."""
    if not isinstance(values, list) or len(values) > MOST_IDS:
        raise ServerFailed(f"The server {name} sent a value for {what} that is no list.")
    return tuple(whole(value, what, name, most) for value in values)


def counts_of(told: Sequence[Any], name: str) -> Counts:
    """The counts of steps, of drafted and of accepted guesses.

    Raises ``ServerFailed`` where one is none, or where they contradict each other.
    """
    named = ("steps with guesses", "drafted guesses", "accepted guesses")
    found = Counts(*(whole(value, what, name) for value, what in zip(told, named, strict=True)))
    if found.accepted > found.drafted or found.steps > found.drafted:
        raise contradiction(name)
    return found


def steps_of(accepted: Any, drafted: Any, name: str) -> tuple[Step, ...]:
    """The steps from two lists of one length. Raises ``ServerFailed`` where they contradict each other."""
    kept, made = wholes(accepted, "accepted guesses", name, 1000), wholes(drafted, "drafted guesses", name, 1000)
    if len(kept) != len(made) or any(k > m for k, m in zip(kept, made, strict=False)):
        raise contradiction(name)
    return tuple(Step(m, k) for k, m in zip(kept, made, strict=True))


def contradiction(name: str) -> ServerFailed:
    return ServerFailed(f"The server {name} sent counts of guesses that contradict each other.")


def sums_of(steps: Sequence[Step]) -> Counts:
    return Counts(len(steps), sum(step.drafted for step in steps), sum(step.accepted for step in steps))
