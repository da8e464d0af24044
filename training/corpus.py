"""The training text of the embedded pair: documents by domain, cut into training and held-out parts.

The corpus folder holds UTF-8 text files whose documents are separated by a line ``<|endoftext|>``;
Python source comes from the standard library of the running interpreter. Every document is held out or
trained on as a whole, so no held-out sentence leaks through a neighbouring window.
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_EVERY = 25  # one document in 25 of every domain is never trained on
FICTION_SHARE = 0.2  # of the easy fiction is used: there is a lot of it, in an older style

STORY_FILES = ("01_tinystories_train_head_cased.txt", "02_tinystories_train_next_truecased.txt")
CHILDREN_FILE = "04_public_domain_childrens_books.txt"
FICTION_FILE = "06_public_domain_easy_fiction.txt"
TALES_FILE = "03_fairytaleqa_278_tales.txt"  # validation only

# How often each domain is drawn for a training window.
MIXTURE = {"story": 0.36, "children": 0.20, "fiction": 0.08, "python": 0.22, "copy": 0.14}

_SKIPPED_PACKAGES = {"test", "tests", "site-packages", "idlelib", "lib2to3", "ensurepip", "encodings"}
_NAMES = ("Lily", "Tom", "Anna", "Ben", "Mia", "Max", "Sam", "Sue", "Lucy", "Tim", "Jack", "Sara", "Leo", "Amy")
_WORDS = ("red", "blue", "green", "big", "small", "dog", "cat", "bird", "ball", "car", "tree", "cake", "boat")


def read_documents(path: Path) -> list[str]:
    """Read all documents of one corpus file."""
    text = path.read_text(encoding="utf-8")
    return [doc.strip() for doc in text.split(f"{END_OF_TEXT}\n") if doc.strip()]


def python_documents() -> list[str]:
    """Read all modules of the running interpreter's standard library, without tests and data tables."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(f for f in root.rglob("*.py") if not _SKIPPED_PACKAGES & set(f.relative_to(root).parts))
    texts = (f.read_text(encoding="utf-8", errors="ignore") for f in files)
    return [text for text in texts if len(text) > 200]


def load(corpus: Path, seed: int = 0) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Read the corpus folder; return the training documents and the held-out documents by domain."""
    rng = random.Random(seed)
    domains = {
        "story": [doc for name in STORY_FILES for doc in read_documents(corpus / name)],
        "children": read_documents(corpus / CHILDREN_FILE),
        "fiction": [doc for doc in read_documents(corpus / FICTION_FILE) if rng.random() < FICTION_SHARE],
        "python": python_documents(),
    }
    train, held_out = {}, {}
    for name, documents in domains.items():
        train[name] = [d for i, d in enumerate(documents) if i % HELD_OUT_EVERY]
        held_out[name] = documents[::HELD_OUT_EVERY]
    train["copy"] = list(copy_documents(train, count=12_000, rng=rng))
    held_out["copy"] = list(copy_documents(held_out, count=150, rng=rng))
    held_out["tales"] = read_documents(corpus / TALES_FILE)
    return train, held_out


def copy_documents(sources: dict[str, list[str]], count: int, rng: random.Random) -> Iterator[str]:
    """Documents that repeat a passage, literally or with one word replaced throughout.

    The heading says which of the two it is, so that a prompt can ask for a copy in the same words.
    """
    for _ in range(count):
        domain = rng.choices(("story", "children", "python"), weights=(6, 1, 3))[0]
        passage = ""
        while len(passage) < 120:
            passage = _passage(rng.choice(sources[domain]), rng, lines=domain == "python")
        old, new = _replacement(passage, rng)
        if old is None or rng.random() < 0.3:
            yield f"Text:\n{passage}\n\nThe same text again:\n{passage}\n"
        else:
            edited = re.sub(rf"\b{re.escape(old)}\b", new, passage)
            yield f"Text:\n{passage}\n\nThe same text with {new} instead of {old}:\n{edited}\n"


def _passage(document: str, rng: random.Random, lines: bool) -> str:
    """A run of whole lines or sentences, cut at 500 characters, so that two copies fit one training window."""
    parts = document.splitlines(keepends=True) if lines else re.split(r"(?<=[.!?])(?=\s)", document)
    start = rng.randrange(len(parts))
    length, passage = rng.randint(150, 450), ""
    while start < len(parts) and len(passage) < length:
        passage += parts[start]
        start += 1
    return (passage.strip("\n") if lines else passage.strip())[:500]


def _replacement(passage: str, rng: random.Random) -> tuple[str | None, str]:
    """Choose a word of the passage and another word of the same kind to replace it."""
    for kind in (_NAMES, _WORDS):
        present = [word for word in kind if re.search(rf"\b{word}\b", passage)]
        if present:
            old = rng.choice(present)
            return old, rng.choice([word for word in kind if word not in present] or [old])
    identifiers = re.findall(r"\b[a-z_]{4,}\b", passage)
    if "def " in passage and identifiers:
        return rng.choice(identifiers), rng.choice(("value", "item", "result", "node", "total", "name_"))
    return None, ""
