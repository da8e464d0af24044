"""Bounds of a config's sizes: config classes make lists, and models tensors, as large as such numbers say."""

from __future__ import annotations

import math
import re
from typing import Any

from specdec.errors import LoadFailed

# No config of a usable model exceeds these bounds.
_DEEPEST = 32
_MOST = {r"layers$|^n_layer$|block_count$": 1_000, r"labels$": 100_000}  # by the end of the field's name
_MOST_OF_A_SIZE = 10**8
# Words in the names of fields that make tensors. Other whole numbers (a base of rotary angles, a seed) may be larger.
_SIZE_WORDS = set(
    "size sizes dim dims d width rank layer layers block blocks depth head heads headdim expert experts vocab position "
    "positions embeddings embedding embed embd hidden inner ff ffn dff group groups ngroups bucket buckets hashes "
    "codebooks quantizers kernel conv filters channels channel state states expand classes len length ctx centroids "
    "streams hc inputs features units latent".split()
)
_NO_SIZES = ("max_length", "min_length", "model_max_length")


def require_sane(name: str, value: Any, field: str = "", depth: int = 0) -> None:
    """Refuse a config with sizes or a depth that no model has. Raises ``LoadFailed``."""
    if depth > _DEEPEST:
        raise LoadFailed(f"The config.json of {name!r} is nested too deeply. Choose another checkpoint.")
    if isinstance(value, dict):
        for key, part in value.items():
            require_sane(name, part, key, depth + 1)
    elif isinstance(value, list):
        for part in value:
            require_sane(name, part, field, depth + 1)
    elif isinstance(value, (int, float)):
        most = next((most for end, most in _MOST.items() if re.search(end, field)), math.inf)
        is_size = isinstance(value, int) and field not in _NO_SIZES and _SIZE_WORDS & set(re.split("[_.]", field))
        if value > min(most, _MOST_OF_A_SIZE if is_size else math.inf):
            raise LoadFailed(
                f"The config.json of {name!r} sets {field[:80]} to {value:.0e}, and the most that is taken here is "
                f"{min(most, _MOST_OF_A_SIZE):,}. Choose another checkpoint."
            )
