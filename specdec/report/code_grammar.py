"""How code that repeats a run says what its text must obey."""

from __future__ import annotations

from specdec.events import JSON_STYLE, Grammar, SamplingParams
from specdec.report.code_text import python, shell_quoted

PROCESSOR_IMPORTS = ["import torch", "from llguidance import LLMatcher", "from llguidance.hf import from_tokenizer"]
# Remarks where a text that obeys the same grammar may be another one.
FREE = "# vLLM also allows special tokens where this grammar allows bytes that are no text: it may write another one"
OWN_LIBRARY = "# {tool} reads the grammar with its own library: the text may be another one that obeys it"
# transformers has no such setting. This reads the whole text again at each place, and what a mask allows is tried as in
# ``GuidanceMatcher``: where the next bytes are certain, the mask has few tokens, so all of them are.
_PROCESSOR = """

class Obey(LogitsProcessor):
    def __init__(self, prompt):
        self.prompt = prompt
        eos, rows = target.generation_config.eos_token_id, target.config.get_text_config().vocab_size
        reader = from_tokenizer(tokenizer, n_vocab=rows, eos_token=eos)
        self.ends = reader.eos_tokens
        self.special = torch.tensor([reader.is_special_token(token) for token in range(rows)])
        self.matcher = LLMatcher(reader, {made})

    def __call__(self, ids, scores):
        matcher = self.matcher.deep_copy()
        matcher.try_consume_tokens(ids[0, self.prompt :].tolist())
        bits = torch.frombuffer(bytearray(matcher.compute_bitmask()), dtype=torch.uint8)
        allowed = (bits[:, None] >> torch.arange(8) & 1).flatten()[: scores.shape[1]].bool()
        # The mask alone allows special tokens where a grammar allows bytes that are no text, and it leaves out a byte
        # that no token spells.
        doubtful = allowed if matcher.compute_ff_bytes() else allowed & self.special
        for token in doubtful.nonzero().flatten().tolist():
            fits = matcher.is_accepting() if token in self.ends else matcher.validate_tokens([token]) == 1
            allowed[token] = fits
        return scores.masked_fill(~allowed.to(scores.device), -torch.inf)

"""


def processor(grammar: Grammar) -> str:
    """A logits processor for transformers, in Python."""
    further = f", defaults={python(JSON_STYLE)}" if grammar.kind == "json-schema" else ""
    made = f"LLMatcher.grammar_from_{grammar.kind.replace('-', '_')}({python(grammar.text)}{further})"
    return _PROCESSOR.format(made=made)


def grammar_argument(params: SamplingParams) -> dict[str, str]:
    """The arguments of ``SamplingParams``, as Python."""
    if params.grammar is None:
        return {}
    made = f"specdec.Grammar({python(params.grammar.kind)}, {python(params.grammar.text)})"
    return {"grammar": made} | ({} if params.draft_mask else {"draft_mask": "False"})


def grammar_option(grammar: Grammar) -> str:
    """The option of a command; a schema and a Lark grammar stand in a file that the shell makes."""
    if grammar.kind == "regex":
        return f"--regex {shell_quoted(grammar.text)}"
    return f"--{grammar.kind} <(printf %s {shell_quoted(grammar.text)})"


def no_grammar(tool: str, grammar: Grammar) -> str:
    """The code for a tool that cannot be asked for it."""
    return f"# {tool} takes no grammar of this kind: {grammar.kind}.\n"
