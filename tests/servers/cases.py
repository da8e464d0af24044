"""The calls that the recorded servers were asked, and that a live one is asked."""

from __future__ import annotations

from specdec.events import SamplingParams
from specdec.servers.answer import Asked

STORY = "Once upon a time, there was a little girl named Lily. She had a small dog that"
REPEAT = "Tom had a red ball. Tom had a red ball. Tom had a red"
SECONDS = 120.0


def asked(prompt: str, chat: bool = False, **settings) -> Asked:
    message = ({"role": "user", "content": prompt},) if chat else prompt
    return Asked(message, SamplingParams(**{"max_new_tokens": 40} | settings), SECONDS)


CASES = {
    "length": asked(STORY, ignore_eos=True),
    "one token": asked(STORY, max_new_tokens=1),
    "repeat": asked(REPEAT, ignore_eos=True),
    "end of text": asked("They all went home and were happy. The", max_new_tokens=120),
    "stop string": asked(STORY, stop=("to play",), max_new_tokens=60),
    "characters": asked("\u00dcber \U0001f600 caf\u00e9:", ignore_eos=True),
}
# Of a server without speculation. Beside it, vLLM 0.32 refuses min_p, and its build for CPUs ends its engine.
SAMPLED = asked(STORY, temperature=0.8, top_k=50, top_p=0.9, min_p=0.01, seed=7)


def fifty() -> list[Asked]:
    """Fifty prompts: openings of stories, with names and things in all combinations."""
    people = ("Lily", "Tom", "Sue", "Ben", "Mia")
    things = ("a red ball", "a small dog", "an old book", "a big tree", "a blue boat")
    starts = ("One day, {} found {}. It was", "{} had {}. Every day")
    return [
        asked(start.format(person, thing), max_new_tokens=48)
        for start in starts
        for person in people
        for thing in things
    ]
