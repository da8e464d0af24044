"""Write a trace from a loop of your own: ``python -m examples.own_trace TARGET DRAFT > trace.jsonl``.

The loop below uses nothing of specdec: it notes when each round ended and which guesses it kept. ``specdec view
trace.jsonl`` shows the race, with the same verdict and views as for specdec's own loop. docs/trace.md has all fields.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 48
PROMPT = "Once upon a time, there was a little girl named Lily."


@torch.inference_mode()
def main(target: str, draft: str) -> None:
    tokenizer, models = AutoTokenizer.from_pretrained(target), {}
    for name in (target, draft):
        models[name] = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    prompt = tokenizer(PROMPT).input_ids

    def choices(name: str, ids: list[int], count: int) -> list[int]:
        """The model's most likely next token after each of the last ``count`` prefixes of ``ids``."""
        return models[name](torch.tensor([ids])).logits[0, -count:].argmax(-1).tolist()

    def write(event: str, ids: list[int], **fields: object) -> None:
        """A line: the event, and the text of each token that it mentions, one character for each byte."""
        texts = {str(token): tokenizer.decode([token]).encode().decode("latin-1") for token in ids}
        print(json.dumps({"event": event, **fields} | ({"tokens": texts} if ids else {})))

    for lane, gamma in (("generate", 0), ("speculative", 4)):
        choices(target, prompt, 1), choices(draft, prompt, 1)  # warm up
        facts = {"layers": None, "dtype": "float32", "bits": None}
        pair = {"name": None, "device": "cpu", "compiled": False, "target": {"name": "my target"} | facts}
        pair["draft"] = {"kind": "model", "text": "my draft", "name": "my draft"} | facts
        machine = {"cpu": "my machine", "cores": None, "threads": torch.get_num_threads(), "device": "cpu"}
        write(
            "started", prompt, lane=lane, prompt_ids=prompt, params={"max_new_tokens": TOKENS}, gamma=gamma, pair=pair,
            machine=machine, acceptance="lossless", accept_top_k=None, versions={}, neutralised={},
        )  # fmt: skip
        ids, began, index, first = list(prompt), time.perf_counter(), 0, 0.0
        while (room := len(prompt) + TOKENS - len(ids)) > 0:
            start, guesses = time.perf_counter(), []
            for _ in range(min(gamma, room - 1) if index else 0):  # the first round is the prompt's
                guesses += choices(draft, ids + guesses, 1)
            drafted = time.perf_counter()
            chosen = choices(target, ids + guesses, len(guesses) + 1)
            checked = time.perf_counter()
            kept = next((at for at, guess in enumerate(guesses) if guess != chosen[at]), len(guesses))
            committed = [*guesses[:kept], chosen[kept]]
            ids += committed
            write(
                "round", [*guesses, *committed], index=index, draft=[token(*pick, kept) for pick in enumerate(guesses)],
                token_id=committed[-1], committed_ids=committed,
                token_kind="target" if not guesses else "bonus" if kept == len(guesses) else "correction",
                draft_seconds=drafted - start, verify_seconds=checked - drafted, elapsed_seconds=checked - began,
            )  # fmt: skip
            index += 1
            first = checked - began if index == 1 else first
        write("finished", [], finish_reason="length", prefill_seconds=first, elapsed_seconds=checked - began)


def token(at: int, guess: int, kept: int) -> dict[str, object]:
    """A guess and its outcome. A loop that samples gives its probabilities instead of None."""
    unknown = ("draft_prob", "target_prob", "accept_prob", "draw", "target_token_id", "draft_confidence")
    status = "accepted" if at < kept else "rejected" if at == kept else "discarded"
    return {"token_id": guess, "status": status} | dict.fromkeys(unknown)


if __name__ == "__main__":
    main(*sys.argv[1:3])
