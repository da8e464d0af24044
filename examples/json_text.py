"""Write text that a JSON schema allows, with a draft that obeys it and without: ``python -m examples.json_text``.

The text is the same either way. A draft that obeys proposes nothing that the schema forbids, and what the schema forces
costs no draft pass. A free draft does not know the schema, so few of its guesses are kept.
"""

from __future__ import annotations

import json

import specdec
from specdec.measure.prompts import PET_PROMPT, PET_SCHEMA


def main() -> None:
    pair = specdec.load_pair()
    schema = specdec.Grammar.json_schema(PET_SCHEMA.read_text(encoding="utf-8"))
    for mask, draft in ((True, "A draft that obeys"), (False, "A free draft")):
        params = specdec.SamplingParams(max_new_tokens=64, grammar=schema, draft_mask=mask)
        result = specdec.collect(specdec.speculative(pair, PET_PROMPT, params=params), pair.tokenizer)
        if mask:
            print(json.dumps(json.loads(pair.tokenizer.decode(result.token_ids[:-1])), indent=2), "\n")
        forced = sum(len(event.draft) for event in result.rounds if event.drafted_by == "grammar")
        found = result.metrics
        print(
            f"{draft}: {found.alpha:.0%} of its guesses are kept, {found.mean_acceptance_length:.1f} tokens a target "
            f"pass; {forced} of {found.new_tokens} tokens were forced."
        )


if __name__ == "__main__":
    main()
