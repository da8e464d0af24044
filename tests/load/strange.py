"""Values that no page or program would send, drawn by hypothesis, and the same in every run."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

HUGE = st.sampled_from([2**53, 2**63, -(2**63), 10**30, 10**400, 1e308, -1e308, 5e-324, 0.1 + 0.2, -1, 1e9])
WORDS = st.sampled_from([
    "", "auto", "speculative", "generate", "null", "NaN", "-inf", "1e999", "0x10", "\u0661\u0662", "../../etc/passwd",
    "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:7860/config", "<script>alert(1)</script>", "{}", "[]",
    "\x00", "\u202e", "a" * 5000, "9" * 5000, "{{7*7}}", "${7*7}", "%s%n", '{"prompt": 1}',
    '{"settings": {}, "repeat": 1}', '{"settings": {"tokens": 1e9}, "repeat": []}', "[" * 3000, '{"a":' * 3000,
])  # fmt: skip
TEXT = st.characters(exclude_categories=["Cs"])
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), HUGE, WORDS,
    st.text(TEXT, max_size=20),
)  # fmt: skip
ODD = st.one_of(st.floats(), st.text(st.characters(), max_size=5), st.sampled_from(["\ud800", "\udfff\ud800"]))
LEAVES = st.one_of(*[PLAIN] * 15, ODD)  # most are valid JSON, and so reach the code that reads them
NAMES = st.one_of(
    st.text(TEXT, max_size=10), st.sampled_from(["__type__", "path", "url", "meta", "role", "data", "lanes"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(NAMES, inner, max_size=5)),
    max_leaves=30,
)


@st.composite
def deep(draw: Any) -> Any:
    """Lists and objects, nested many levels deep."""
    found = draw(LEAVES)
    for _ in range(draw(st.integers(1, 120))):
        found = {"a": found} if draw(st.booleans()) else [found]
    return found


ANYTHING = st.one_of(VALUES, LEAVES, deep(), st.lists(LEAVES, min_size=200, max_size=300))


@st.composite
def inputs_like(draw: Any, good: list[Any]) -> Any:
    """Inputs of a function: good ones with some replaced, too few or too many, or no list at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(ANYTHING)
    found = list(good)
    for at in range(len(found)):
        if draw(st.integers(0, 2)) == 0:
            found[at] = draw(ANYTHING if draw(st.integers(0, 4)) == 0 else LEAVES)
    if kind == 1:
        found = found[: draw(st.integers(0, len(found)))] + draw(st.lists(LEAVES, max_size=3))
    return found


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """``count`` examples of ``strategy``, the same at every run."""
    found: list[Any] = []

    @settings(
        max_examples=count, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found
