"""Limits on what visitors may ask for: wide on one's own machine, tight where strangers can reach the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdec.errors import BadSetting, quoted
from specdec.events import Grammar


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a page. None means no limit except that of the models.

    ``pairs``: which pairs visitors may load: any, listed ones, or none.
    """

    new_tokens: int = 2048
    prompt_tokens: int | None = None
    seconds: float | None = None  # of a job
    waiting: int | None = 200  # jobs in the queue that need the device
    waiting_short: int | None = 200  # and that do not; one of those takes up to a second
    places: int | None = None  # jobs of one session, waiting and running
    places_of_address: int = 0  # and of one network address, if ``places`` is given
    stop_strings: int | None = None
    stop_characters: int | None = None  # of each stop string
    runs: int = 25  # of one race
    prompts: int = 1000  # of a benchmark
    file_bytes: int = 10_000_000  # of a file that a visitor chose, unpacked
    draws: int = 10_000  # of each sample of the losslessness test
    grammar_characters: int = 100_000  # of a grammar's text; the page reads no longer text from a recording
    pairs: Literal["any", "listed", "none"] = "any"

    @property
    def public(self) -> bool:
        """Whether strangers can reach the page."""
        return self.pairs != "any"

    def take_grammar(self, grammar: Grammar | None) -> None:
        """Raise ``InvalidInput`` for a longer grammar than this page reads. What a grammar may cost is bounded too."""
        if grammar is not None and len(grammar.text) > self.grammar_characters:
            raise BadSetting(
                f"grammar has {len(grammar.text):,} characters; this page reads at most {self.grammar_characters:,}. "
                "Nothing ran."
            )

    def take(
        self,
        new_tokens: int,
        runs: int = 1,
        prompts: int = 1,
        draws: int = 1,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
    ) -> None:
        """Raise ``InvalidInput`` for more than this page allows. Call it before a job joins the queue."""
        self.take_grammar(grammar)
        for name, found, most in (
            ("max_new_tokens", new_tokens, self.new_tokens),
            ("runs", runs, self.runs),
            ("prompts", prompts, self.prompts),
            ("draws", draws, self.draws),
        ):
            if found > most:
                raise BadSetting(f"{name} is {quoted(found)}; this page allows at most {most}. Nothing ran.")
        if self.stop_strings is not None and len(stop) > self.stop_strings:
            raise BadSetting(
                f"stop has {len(stop)} strings; this page allows at most {self.stop_strings}. Nothing ran."
            )
        longest = max(map(len, stop), default=0)
        if self.stop_characters is not None and longest > self.stop_characters:
            raise BadSetting(
                f"stop has a string of {longest} characters; this page allows at most {self.stop_characters}. "
                "Nothing ran."
            )


LOCAL = Limits()
PUBLIC = Limits(
    new_tokens=256,
    prompt_tokens=512,
    stop_strings=4,
    stop_characters=40,
    seconds=60,
    waiting=16,
    waiting_short=6,
    places=2,
    places_of_address=4,
    runs=5,
    prompts=20,
    file_bytes=1_000_000,
    draws=1_000,
    grammar_characters=4_000,
    pairs="none",
)
