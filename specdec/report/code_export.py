"""Writes code that decodes as a run did, for specdec, transformers, vLLM, SGLang and llama.cpp.

A recording may come from a stranger. So a schema checks it, and no expression of it is copied. Every value is written
as a literal of Python or JSON, or quoted for the shell. The first line of each block names
the version whose documentation and sources it follows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic reads the standard one from Python 3.12 on

from specdec.engine.policy import Fixed, policy_of
from specdec.errors import BadSetting, InvalidInput, SpecdecError
from specdec.events import LOSSLESS, SamplingParams
from specdec.facts import OPEN, DraftFacts, ModelFacts, PairFacts, on_servers
from specdec.measure.prompts import message_of
from specdec.report.code_grammar import (
    FREE,
    OWN_LIBRARY,
    PROCESSOR_IMPORTS,
    grammar_argument,
    grammar_option,
    no_grammar,
    processor,
)
from specdec.report.code_text import command, keywords, literal, python, shell_quoted
from specdec.report.engine_flags import (
    LLAMACPP,
    SGLANG,
    VLLM,
    llamacpp_options,
    lookup_match,
    sglang_options,
    vllm_config,
)
from specdec.report.schema import place
from specdec.servers.structured import GUIDANCE, allows_no_text, llamacpp_grammar, sglang_grammar, vllm_grammar

FIXED = 5  # the draft length for tools that cannot choose it themselves
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
NEUTRAL = {"top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "ignore_eos": False}


@with_config(OPEN)
class _Started(TypedDict):
    """The fields of a ``Started`` that the code needs."""

    params: SamplingParams
    pair: PairFacts
    gamma: int | str
    acceptance: str
    accept_top_k: int | None


@with_config(OPEN)
class _Settings(TypedDict):
    prompt: str
    chat: NotRequired[int]


@with_config(OPEN)
class _Run(TypedDict):
    settings: _Settings
    started: _Started


_RUN: TypeAdapter[_Run] = TypeAdapter(_Run)


@dataclass(frozen=True)
class Run:
    """A run as the tools need it. Names and prompt are not quoted yet; ``expression`` is Python."""

    params: SamplingParams
    gamma: int | str
    acceptance: str
    accept_top_k: int | None
    kind: str  # the kind of draft; "none" without one
    expression: str
    draft: DraftFacts
    embedded: bool
    target: str
    target_facts: ModelFacts
    prompt: str
    chat: bool

    @property
    def length(self) -> int:
        asked = self.gamma if isinstance(self.gamma, int) else FIXED
        return min(asked, self.draft.get("most_guesses", asked))

    @property
    def draft_name(self) -> str:
        return _name(self.embedded, "head" if self.kind == "eagle3" else "draft", self.draft)

    @property
    def named(self) -> str:
        """The checkpoint that drafts; empty for a way without one."""
        return self.draft_name if "name" in self.draft else ""

    @property
    def parallel(self) -> bool:
        """Whether a head makes all guesses of a draft in one pass (P-EAGLE)."""
        return self.kind == "eagle3" and self.draft.get("one_pass", False)

    @property
    def rows_apart(self) -> int:
        return abs(self.draft.get("rows", 0) - self.target_facts.get("rows", 0))

    @property
    def apart(self) -> bool:
        """Whether other tools treat target and draft as models with different tokenizers."""
        return self.draft.get("own_tokenizer", False) or self.rows_apart > 0

    @property
    def reads_whole(self) -> bool:
        """Whether native passes of a draft model did not read its weights in 8 bits, as they do unless told."""
        native = self.draft.get("torch_passes", "") is None
        return self.kind in ("model", "combined") and native and self.draft.get("dtype") == "float32"

    @property
    def sampled(self) -> bool:
        return not self.params.greedy

    @property
    def message(self) -> Any:
        return message_of(self.prompt, self.chat)

    def value(self, name: str) -> Any:
        """A sampling parameter. Whole numbers have no point."""
        found = getattr(self.params, name)
        return int(found) if isinstance(found, float) and found.is_integer() else found


def take_home(record: str, expression: Callable[[str, str], str]) -> dict[str, str]:
    """The code of a run for each tool. ``record`` is JSON: ``{"settings": ..., "started": ...}``, as in a recording.

    ``expression(kind, text)`` gives the Python expression for a way to draft that this program knows. Raises
    ``InvalidInput`` if the record does not describe a run.
    """
    try:
        given = _RUN.validate_json(record, strict=True)
        if on_servers(given["started"]["pair"]):
            return {"specdec": server_race(given["settings"], given["started"]["params"])}
        run = _read(given, expression)
    except ValidationError as error:
        raise InvalidInput(f"There is no code for this run: its {place(error)} cannot be read.") from error
    except SpecdecError as error:
        raise InvalidInput(f"There is no code for this run. {error}") from error
    return {tool: write(run) for tool, write in TOOLS.items()}


def _read(given: _Run, expression: Callable[[str, str], str]) -> Run:
    started, settings = given["started"], given["settings"]
    pair, gamma = started["pair"], started["gamma"]
    policy_of(gamma)  # refuses a policy of another program
    grammar = started["params"].grammar
    if grammar is not None and grammar.kind == "function":
        raise InvalidInput("Its text obeyed a function, and a recording has only the name of that.")
    embedded = pair["name"] == "embedded"
    draft = pair["draft"] if gamma != 0 else None
    kind = draft["kind"] if draft else "none"
    target = _name(embedded, "target", pair["target"])
    if kind == "model":
        built = python(_name(embedded, "draft", draft))
    else:
        built = expression(kind, _text_of(draft, embedded)) if draft else "None"
    return Run(
        params=started["params"],
        gamma=gamma,
        acceptance=started["acceptance"],
        accept_top_k=started["accept_top_k"],
        kind=kind,
        expression=built,
        draft=draft or {"kind": "none", "text": ""},
        embedded=embedded,
        target=target,
        target_facts=pair["target"],
        prompt=settings["prompt"],
        chat=bool(settings.get("chat", 0)),
    )


def _text_of(draft: DraftFacts, embedded: bool) -> str:
    """The text of a way to draft, as it is written elsewhere: in a combination, where its draft model is."""
    copying, plus, rest = draft["text"].partition("+")
    if not plus or rest != draft.get("name"):
        return draft["text"]
    return f"{copying}+{'embedded' if embedded else _name(False, 'draft', draft)}"


def _name(embedded: bool, role: str, facts: Any) -> str:
    """The name of a model for a tool. Refused if it would be read as an option or would end the line."""
    if embedded:
        return f"specdec/embedded/{role}"
    name = facts.get("name")
    if not isinstance(name, str) or not name or name.startswith("-") or _HIDDEN.search(name):
        raise InvalidInput("It names a model that cannot exist.")
    return f"path/to/{name}" if facts.get("local") else name


def _changed(run: Run) -> dict[str, Any]:
    return {name: run.value(name) for name, neutral in NEUTRAL.items() if run.value(name) != neutral}


def _none(tool: str, run: Run) -> str:
    return f"# {tool} has no method of the kind {run.kind}.\n"


# One function for each tool.


def specdec(run: Run) -> str:
    own = [] if run.embedded and run.kind in ("model", "none") else [run.expression]
    pair = own if not own or not run.embedded else [f"draft={own[0]}"]
    if not run.embedded:
        pair = [python(run.target), *own]
    if run.reads_whole:
        pair.append('draft_weights="same"')
    params = {"max_new_tokens": run.value("max_new_tokens"), "temperature": run.value("temperature")} | _changed(run)
    if run.sampled:
        params["seed"] = run.params.seed
    if run.params.stop:
        params["stop"] = list(run.params.stop)
    sampling = {name: python(value) for name, value in params.items()} | grammar_argument(run.params)
    call = {"gamma": python(run.gamma), "params": "params"}
    if run.acceptance != "lossless":
        call["acceptance"] = python(run.acceptance)
    if run.accept_top_k is not None:
        call["accept_top_k"] = python(run.accept_top_k)
    return f"""import specdec

pair = specdec.load_pair({", ".join(pair)})
params = specdec.SamplingParams({keywords(sampling)})
events = specdec.speculative(pair, {python(run.message)}, {keywords(call)})
result = specdec.collect(events, pair.tokenizer)
print(result.text)
"""


def server_race(settings: _Settings, params: SamplingParams) -> str:
    """The command that races servers again. Nobody but their user knows their addresses."""
    given = {
        "--tokens": params.max_new_tokens, "--temperature": params.temperature, "--top-k": params.top_k,
        "--top-p": params.top_p, "--min-p": params.min_p, "--seed": params.seed,
    }  # fmt: skip
    plain = {"--top-k": 0, "--top-p": 1, "--min-p": 0, "--seed": None}
    options = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
               for name, value in given.items() if name not in plain or value != plain[name]]  # fmt: skip
    options += [f"--stop {shell_quoted(text)}" for text in params.stop]
    if params.grammar is not None:
        options.append(grammar_option(params.grammar))
    options += ["--ignore-eos"] * params.ignore_eos + ["--chat"] * bool(settings.get("chat", 0))
    addresses = "plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001"
    asked = command("specdec servers " + " ".join(options), f"-- {addresses} {shell_quoted(settings['prompt'])}")
    return f"# with the addresses of your servers; the first does not speculate\n{asked}"


def race_code(load: Mapping[str, Any], prompt: Any, params: SamplingParams, asked: Mapping[str, Any]) -> str:
    """Python that repeats a race and prints the verdict.

    ``load`` are arguments of ``load_pair``, and ``asked`` those of ``race`` besides pair, prompt and params. All are
    plain values. Of ``params`` only what differs from the defaults is written.
    """
    defaults = SamplingParams()
    changed = {each.name: getattr(params, each.name) for each in fields(params)}
    changed = {name: value for name, value in changed.items() if value != getattr(defaults, name)}
    if params.stop:
        changed["stop"] = list(params.stop)
    changed.pop("grammar", None)
    loaded = keywords({name: python(value) for name, value in load.items()})
    sampling = keywords({name: python(value) for name, value in changed.items()} | grammar_argument(params))
    lines = "".join(f"    {name}={python(value)},\n" for name, value in asked.items())
    return f"""import specdec

pair = specdec.load_pair({loaded})
params = specdec.SamplingParams({sampling})
race = specdec.race(
    pair,
    {python(prompt)},
    params=params,
{lines})
print(specdec.verdict(race, pair.tokenizer))
"""


def _drafting(run: Run) -> dict[str, str] | None:
    """The arguments that tell transformers how to draft; None if it has no such method."""
    tokenizers = {"tokenizer": "tokenizer", "assistant_tokenizer": "draft_tokenizer"} if run.apart else {}
    return {
        "none": {},
        "model": {"assistant_model": "draft", **tokenizers},
        "prompt-lookup": {
            "prompt_lookup_num_tokens": str(run.length),
            "max_matching_ngram_size": str(run.draft.get("max_ngram", 3)),
        },
        "early-exit": {"assistant_early_exit": python(run.draft.get("layers"))},
        "mtp": {"use_mtp": "True"},
    }.get(run.kind)


def transformers(run: Run) -> str:
    drafting = _drafting(run)
    if drafting is None:
        return _none("transformers 5.23", run)
    # Neutral values too, because a missing field is filled in from the model's own generation config.
    sampling: dict[str, Any] = {"do_sample": run.sampled}
    if run.sampled:
        sampling |= {name: run.value(name) for name in ("temperature", "top_k", "top_p")}
        sampling["min_p"] = run.value("min_p") or None
    fields = {"max_new_tokens": run.value("max_new_tokens")} | sampling
    fields["repetition_penalty"] = run.value("repetition_penalty")
    if run.params.ignore_eos:
        fields["eos_token_id"] = None
    lines = [
        f"tokenizer = AutoTokenizer.from_pretrained({_source(run.target)})",
        f"target = AutoModelForCausalLM.from_pretrained({_source(run.target)})",
    ]
    if run.kind == "model":
        lines.append(f"draft = AutoModelForCausalLM.from_pretrained({_source(run.draft_name)})")
        if run.apart:
            lines.append(f"draft_tokenizer = AutoTokenizer.from_pretrained({_source(run.draft_name)})")
    guide = {"model": "draft", "early-exit": "target"}.get(run.kind)
    policy = policy_of(run.gamma)
    if guide and isinstance(policy, Fixed):
        config = f"{guide}.generation_config"
        lines.append(f"{config}.num_assistant_tokens = {policy.gamma}")
        lines.append(f'{config}.num_assistant_tokens_schedule = "constant"')
        lines.append(f"{config}.assistant_confidence_threshold = {policy.least_confidence or 0.0}")
    if run.kind == "mtp":
        lines.append("# transformers drafts one token for each MTP layer of the target, and reads none of Qwen's")
    elif run.gamma == "auto":
        lines.append("# transformers' own way to choose the draft length stands for auto")
    elif not isinstance(run.gamma, int) and not guide:
        lines.append(f"# transformers' draft length is fixed here; {FIXED} stands for {run.gamma}")
    lines += _acceptance("transformers", run)
    if run.chat:
        options = 'add_generation_prompt=True, return_tensors="pt", return_dict=True'
        lines.append(f"inputs = tokenizer.apply_chat_template({python(run.message)}, {options})")
    else:
        lines.append(f'inputs = tokenizer({python(run.message)}, return_tensors="pt")')
    if run.sampled:
        lines.append(f"torch.manual_seed({python(run.params.seed)})")
    given = drafting | {name: python(value) for name, value in fields.items()}
    imports, names = ["import torch"] * run.sampled, "AutoModelForCausalLM, AutoTokenizer"
    if run.params.grammar is not None:
        imports, names = PROCESSOR_IMPORTS, f"{names}, LogitsProcessor, LogitsProcessorList"
        lines += [processor(run.params.grammar), 'obey = Obey(inputs["input_ids"].shape[1])']
        given |= {"logits_processor": "LogitsProcessorList([obey])"}
    heading, body = "".join(f"{each}\n" for each in imports), "\n".join(lines)
    return f"""# transformers 5.23
{heading}from transformers import {names}

{body}
ids = target.generate(**inputs, {keywords(given)})
print(tokenizer.decode(ids[0, inputs["input_ids"].shape[1]:]))
"""


def _remarks(tool: str, run: Run, more: Iterable[str | bool]) -> list[str]:
    """Remarks on what a server does differently."""
    fixed = isinstance(run.gamma, str) and f"# {tool}'s draft length is fixed; {FIXED} stands for {run.gamma}"
    return [remark for remark in (fixed, *_acceptance(tool, run), *more) if isinstance(remark, str)]


def _acceptance(tool: str, run: Run) -> list[str]:
    """A remark if the tool's acceptance differs from the run's."""
    if run.acceptance == "top-k":
        return [f"# {tool} has no such top-k acceptance: this is lossless"]
    if run.acceptance == "block" and run.sampled:
        return [f"# {tool} verifies guess by guess here, not the draft as a block: it is lossless too"]
    if run.acceptance not in LOSSLESS:
        return [f"# {tool} does not have this acceptance: this is lossless"]
    return []


def _source(name: str) -> str:
    """Arguments of ``from_pretrained`` that load a model of this name."""
    place, file = _place_and_file(name)
    return f"{python(place)}, gguf_file={python(file)}" if file else python(place)


def _place_and_file(name: str) -> tuple[str, str]:
    """The folder or repository of a GGUF file, and the file; other names as they are, and an empty text."""
    if not name.lower().endswith(".gguf"):
        return name, ""
    place, _, file = name.rpartition(":" if ":" in name else "/")
    return place, file


def _of_gguf(tool: str, run: Run) -> str | None:
    """The refusal for a tool that does not read GGUF files as transformers does; None if the run has none."""
    names = [run.target, run.draft_name if run.kind == "model" else ""]
    found = next((name for name in names if _place_and_file(name)[1]), None)
    return f"# {tool} gets no lines for a GGUF file here; llama.cpp\n# and transformers do.\n" if found else None


def vllm(run: Run) -> str:
    if refusal := _of_gguf("vLLM", run):
        return refusal
    ngram = run.draft.get("min_ngram", 1), run.draft.get("max_ngram", 3)
    config = vllm_config(
        run.kind, run.named, run.length, apart=run.apart, sampled=run.sampled, ngram=ngram, parallel=run.parallel
    )
    if config is None:
        return _none(VLLM, run)
    refused = bool(config) and run.sampled and run.params.min_p > 0
    fields = {"max_tokens": run.value("max_new_tokens"), "temperature": run.value("temperature")} | _changed(run)
    if refused:
        del fields["min_p"]
    if run.sampled:
        fields["seed"] = run.params.seed
    arguments = {name: python(value) for name, value in fields.items()}
    imported, library = "LLM, SamplingParams", ""
    served = f" --speculative-config {shlex.quote(literal(config))}" if config else ""
    if run.params.grammar is not None:
        library = f"\n    structured_outputs_config={python(GUIDANCE)},"
        served += f" --structured-outputs-config {shlex.quote(literal(GUIDANCE))}"
        given = {name: python(value) for name, value in vllm_grammar(run.params.grammar).items()}
        arguments["structured_outputs"] = f"StructuredOutputsParams({keywords(given)})"
        imported += "\nfrom vllm.sampling_params import StructuredOutputsParams"
    further = run.kind == "suffix" and "# vLLM's suffix decoding searches earlier requests too"
    free = run.params.grammar is not None and allows_no_text(run.params.grammar) and FREE
    lines = [
        f"# {VLLM}",
        *_remarks("vLLM", run, [further, refused and "# vLLM takes no min_p where it drafts: it is left out", free]),
        f"# As a server: vllm serve {shlex.quote(run.target)}{served}",
    ]
    heading, drafts = "\n".join(lines), f"\n    speculative_config={python(config)}," if config else ""
    return f"""{heading}
from vllm import {imported}

llm = LLM(
    model={python(run.target)},{drafts}{library}
)
params = SamplingParams({keywords(arguments)})
outputs = llm.{"chat" if run.chat else "generate"}({python(run.message)}, params)
print(outputs[0].outputs[0].text)
"""


def _request(port: int, run: Run, fields: dict[str, Any]) -> str:
    """A request to either server. Both use OpenAI's protocol with further fields."""
    body = {"messages" if run.chat else "prompt": run.message} | fields
    ask = command(
        f"curl http://localhost:{port}/v1/{'chat/' if run.chat else ''}completions",
        "-H 'Content-Type: application/json'",
        f"-d {shlex.quote(literal(body))}",
    )
    return f"# in another shell, after the server has started\n{ask}"


def sglang(run: Run) -> str:
    if refusal := _of_gguf("SGLang", run):
        return refusal
    if run.kind == "model" and run.apart:
        return "# SGLang 0.5.23 drafts only with a model of the\n# target's tokenizer and number of vocabulary rows.\n"
    if run.parallel:
        return f"# {SGLANG} has no head that drafts in parallel\n# (P-EAGLE).\n"
    if (options := sglang_options(run.kind, run.named, run.length)) is None:
        return _none(SGLANG, run)
    drafts = run.kind != "none"
    refused = drafts and run.sampled and run.params.min_p > 0
    fields: dict[str, Any] = {"max_tokens": run.value("max_new_tokens"), "temperature": run.value("temperature")}
    if run.sampled:  # neutral values too, because a missing field is filled in from the model's own config
        fields |= {"top_k": run.params.top_k or -1, "top_p": run.value("top_p")}
        fields |= {} if refused else {"min_p": run.value("min_p")}
        fields["seed"] = run.params.seed
    fields["repetition_penalty"] = run.value("repetition_penalty")
    if run.params.ignore_eos:
        fields["ignore_eos"] = True
    if run.params.grammar is not None:
        try:
            fields |= sglang_grammar(run.params.grammar)
        except BadSetting:
            return no_grammar(SGLANG, run.params.grammar)
    lookup, model = run.kind == "prompt-lookup", run.kind == "model" and run.sampled
    own = run.params.grammar is not None and OWN_LIBRARY.format(tool="SGLang")
    penalised = drafts and run.params.repetition_penalty != 1
    more = [
        lookup and "# prompt lookup is NGRAM: it matches more than 3 tokens, and earlier requests",
        model and "# SGLang drafts the likeliest tokens at any temperature; the text is sampled all the same",
        refused and "# SGLang takes no min_p where it drafts: it is left out",
        penalised and "# SGLang leaves a draft's own tokens out of the repetition penalty",
        own,
    ]
    heading = "\n".join([f"# {SGLANG}", *_remarks("SGLang", run, more)])
    serve = command(f"sglang serve --model-path {shlex.quote(run.target)}", *options)
    return f"{heading}\n{serve}{_request(30000, run, fields)}"


def llamacpp(run: Run) -> str:
    if (options := llamacpp_options(run.kind, run.length, run.sampled)) is None:
        return _none(LLAMACPP, run)
    if run.embedded:
        return f"# {LLAMACPP} cannot convert the embedded pair:\n# it does not know its tokenizer.\n"
    if run.kind == "model" and (run.draft.get("own_tokenizer") or run.rows_apart > 128):
        rule = f"# {LLAMACPP} drafts only with a model of the\n"
        return f"{rule}# target's tokenizer, its rows at most 128 more or fewer.\n"
    fields: dict[str, Any] = {"max_tokens": run.value("max_new_tokens"), "temperature": run.value("temperature")}
    if run.sampled:  # its defaults are not neutral, and it filters before the temperature; others filter after it
        fields |= {name: run.value(name) for name in ("top_k", "top_p", "min_p")}
        fields["seed"] = (run.params.seed or 0) % 2**31
        fields["samplers"] = ["penalties", "temperature", "top_k", "top_p", "min_p"]
    if run.params.repetition_penalty != 1:
        fields |= {"repeat_penalty": run.value("repetition_penalty"), "repeat_last_n": 65536}
    if run.params.ignore_eos:
        fields["ignore_eos"] = True
    if run.params.grammar is not None:
        try:
            fields |= llamacpp_grammar(run.params.grammar)
        except BadSetting:
            return no_grammar(LLAMACPP, run.params.grammar)
    own = run.params.grammar is not None and OWN_LIBRARY.format(tool="llama.cpp")
    nearest = f"# the nearest to prompt lookup: it matches {lookup_match(run.length)} tokens, no fewer"
    lines = [
        f"# {LLAMACPP}; it reads GGUF files, which its own folder converts",
        *_remarks("llama.cpp", run, [run.kind == "prompt-lookup" and nearest, own]),
        _gguf(run.target, "target", run.target_facts.get("local", False)),
        *([_gguf(run.draft_name, "draft", run.draft.get("local", False))] if run.kind == "model" else []),
        command("llama-server -m target.gguf", *options),
    ]
    return "\n".join(lines) + _request(8080, run, fields)


def _gguf(name: str, role: str, local: bool) -> str:
    place, file = _place_and_file(name)
    if file:
        path = shlex.quote(name) if local else f'"$(hf download {shlex.quote(place)} {shlex.quote(file)})"'
        return f"cp {path} {role}.gguf"
    return f"python convert_hf_to_gguf.py {shlex.quote(name)}{'' if local else ' --remote'} --outfile {role}.gguf"


TOOLS: dict[str, Callable[[Run], str]] = {
    "specdec": specdec,
    "transformers": transformers,
    "vLLM": vllm,
    "SGLang": sglang,
    "llama.cpp": llamacpp,
}
