"""How each way to draft is written, for the help of the command line. Loads without torch."""

from __future__ import annotations

from specdec.entry_points import DRAFTERS, names_of

# The form of each row of ``registry.METHODS``, by its kind.
FORMS = {
    "model": "hub id, folder or GGUF file of a draft model",
    "prompt-lookup": "prompt-lookup, or prompt-lookup:MIN-MAX for the lengths of its n-grams",
    "suffix": "suffix, which copies no more tokens than it matched",
    "recycling": "recycling for what the target itself ranked first after each token before",
    "early-exit": "early-exit:K for the target's first K layers",
    "combined": "prompt-lookup+REST or suffix+REST, which copies where the text repeats, else drafts as REST says",
    "mtp": "mtp for the multi-token prediction layers of the target",
    "eagle3": "eagle3:HEAD, the hub id or folder of an EAGLE-3 head",
    "dflash": "dflash:HEAD, the hub id or folder of a DFlash head",
    "dspark": "dspark:HEAD, the hub id or folder of a DSpark head",
    "gemma4-assistant": "gemma4-assistant:HEAD, the hub id or folder of a Gemma 4 assistant",
}


def form_of(kind: str) -> str:
    """How a way to draft is written. Raises ``KeyError`` with what to do where the table has no row for it."""
    if kind not in FORMS:
        raise KeyError(f"Add a row for {kind!r} to FORMS in specdec/drafters/forms.py.")
    return FORMS[kind]


def forms() -> str:
    """All forms in one line. A way of another package is only named, because its module may load torch."""
    others = (f"{name}, of an installed package".replace("%", "%%") for name in names_of(DRAFTERS))  # for argparse
    return "; or ".join([*FORMS.values(), *others])
