"""Where figures come from: pair, machine, versions, day and settings; measured here, or brought from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import shorten
from typing import Any, Literal

from specdec.errors import quoted
from specdec.events import GRAMMAR_NAMES, SamplingParams, Started
from specdec.facts import DraftFacts, MachineFacts, ModelFacts, PairFacts, ServerFacts, on_servers
from specdec.lanes.table import ENGINE
from specdec.measure.plan import Plan
from specdec.measure.prompts import Choice
from specdec.measure.results.format import About
from specdec.report import numbers, sentences
from specdec.report.sentences import SYNTHETIC


@dataclass(frozen=True)
class Origin:
    """Where shown figures come from. ``name`` is that of a file."""

    kind: Literal["run", "servers", "recording", "file", "link"]
    name: str = ""

    @property
    def sentence(self) -> str:
        return sentences.ORIGINS[self.kind].format(name=self.name)


HERE, ON_SERVERS, RECORDING, LINK = Origin("run"), Origin("servers"), Origin("recording"), Origin("link")


def provenance_line(about: About) -> str:
    """Pair, machine and day of a measurement, in a line. Of servers the machine is not known."""
    if on_servers(about["pair"]):
        return f"{pair_line(about['pair'])} \u00b7 {day(about)}"
    cores = about["machine"]["cores"]
    parts = [pair_line(about["pair"]), _processor(about), f"{cores} cores" if cores else "", day(about)]
    return " \u00b7 ".join(filter(None, parts))


def _processor(about: About) -> str:
    return about["machine"].get("gpu") or about["machine"]["cpu"]


def day(about: About) -> str:
    """A date as on the whole page: 24 November 2026."""
    return day_of(about["at"])


def day_of(at: float) -> str:
    """The same for seconds since 1970."""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment.day} {moment:%B %Y}"


def date(about: About) -> datetime:
    return datetime.fromtimestamp(about["at"], UTC)


def provenance_rows(about: About, plan: Plan) -> dict[str, str]:
    """Pair, machine, versions, day and settings of a measurement, for a person to read, by name."""
    asked = {"Prompts": f"{prompts(plan.chosen, len(plan.prompts))}.", "Settings": plan_settings(plan)}
    return machine_rows(about) | asked


def asked_line(plan: Plan) -> str:
    """Prompts and settings of a measurement, in a line.

    Of a single prompt that is of no set it has the beginning, or the name where the results hold no text.
    """
    first, *others = plan.prompts
    asked = prompts(plan.chosen, len(plan.prompts))
    if not others and plan.chosen.name == Choice().name:
        beginning = shorten(first.prompt, 60, placeholder=" \u2026")
        asked = f"\u201c{beginning or first.name}\u201d"
    return f"{asked} \u00b7 {plan_settings(plan)}"


def machine_rows(about: About) -> dict[str, str]:
    """Pair, machine, versions and day, for a person to read, by name."""
    if on_servers(about["pair"]):
        machine = {"Server": server_line(about["pair"]["server"]), "Machine": hardware(about["machine"])}
        return machine | {"Times": sentences.AT_THE_CLIENT, "Date": f"{day(about)} (UTC)"}
    return {
        "Pair": pair_line(about["pair"]),
        **head(about["pair"]),
        "Machine": hardware(about["machine"]),
        "Passes": passes(about["pair"]),
        "Engine": engine(about["pair"]),
        "Versions": ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        "Date": f"{day(about)} (UTC)",
    }


def plan_settings(plan: Plan) -> str:
    """All settings except the prompts."""
    params = plan.params
    sampling = " (greedy)" if params.greedy else f", seed {params.seed}" if params.seed is not None else ""
    found = [f"{params.max_new_tokens} new tokens per prompt", numbers.runs(plan.runs)]
    found.append(f"temperature {params.temperature:g}{sampling}")
    found += filter(None, [_grammar(params)])
    if gammas := _gammas(plan):
        found.append(f"\u03b3 {sentences.lengths(gammas)}")
    return ", ".join(found)


def _grammar(params: SamplingParams) -> str:
    """What the text had to obey, in a few words; empty if nothing."""
    if params.grammar is None:
        return ""
    return GRAMMAR_NAMES[params.grammar.kind] + ("" if params.draft_mask else ", which the draft does not obey")


def grammar_note(params: SamplingParams) -> str:
    """A sentence on what the texts of a measurement had to obey; empty if nothing."""
    obeyed = _grammar(params)
    return f"Each text obeys {obeyed}." if obeyed else ""


def run_settings(started: Started) -> str:
    """The settings of a speculative lane in a few words, without the prompt."""
    params = started.params
    parts = [sentences.policy(started.gamma), f"{params.max_new_tokens} new tokens"]
    parts.append("greedy" if params.greedy else f"temperature {params.temperature:g}")
    parts.append(f"top-k {params.top_k}" if params.top_k else "")
    parts.append(f"top-p {params.top_p:g}" if params.top_p != 1 else "")
    parts.append(f"min-p {params.min_p:g}" if params.min_p else "")
    parts.append(f"repetition penalty {params.repetition_penalty:g}" if params.repetition_penalty != 1 else "")
    parts.append(f"stop at {sentences.listed([quoted(text) for text in params.stop])}" if params.stop else "")
    parts.append(_grammar(params))
    own = {"lossless": "", "engine": "", "block": "block verification"}
    own["top-k"] = f"top-{started.accept_top_k} acceptance (lossy)"
    claim = "claims to be lossless" if started.claims_lossless else "lossy"
    parts.append(own.get(started.acceptance, f"{started.acceptance} acceptance ({claim})"))
    return ", ".join(filter(None, parts))


def seed(started: Started) -> str:
    """The seed of a lane, for a person to read."""
    if started.params.greedy:
        return "none (greedy does not sample)"
    return "not set" if started.params.seed is None else str(started.params.seed)  # a server may draw its own


def provenance_columns(about: About, plan: Plan) -> dict[str, Any]:
    """Pair, machine, versions, day and settings of a measurement as plain values, one for each column.

    They are for tables whose rows must explain themselves.
    """
    return machine_columns(about) | {
        "prompt_set": plan.chosen.name,
        "prompts": len(plan.prompts),
        "first_a_category": plan.chosen.first,
        "chat": plan.chosen.chat,
        "new_tokens": plan.params.max_new_tokens,
        "planned_runs": plan.runs,
        "temperature": plan.params.temperature,
        "seed": plan.params.seed,
        "grammar": plan.params.grammar and plan.params.grammar.kind,
        "gammas": " ".join(map(str, _gammas(plan))),
    }


def machine_columns(about: About) -> dict[str, Any]:
    """Pair, machine, versions and day as plain values, one for each column."""
    machine = about["machine"]
    return {
        "server" if on_servers(about["pair"]) else "pair": pair_line(about["pair"]),
        **{name: machine.get(name) for name in ("device", "cpu", "gpu")},
        **about["versions"],
        "date": f"{date(about):%Y-%m-%d}",
    }


def _gammas(plan: Plan) -> list[Any]:
    """Every draft length of the plan that is known, numbers first."""
    found = {gamma for _, gamma in plan.configs if gamma not in (None, ENGINE)}
    return sorted(found, key=lambda gamma: (not isinstance(gamma, int), gamma if isinstance(gamma, int) else 0))


def pair_line(facts: PairFacts) -> str:
    """A pair in one line: names, layers, machine; of a server its engine."""
    if "server" in facts:
        return server_line(facts["server"])
    target, draft, named = facts["target"], facts["draft"], facts["name"] is not None
    models = _model(target, named, "target") + (f" \u2190 {_drafting(draft, named)}" if draft else ", no draft")
    bits = f"{target['bits']} bits" if target["bits"] else ""
    compiled = "compiled" if facts["compiled"] else ""
    name = f"{facts['name']}, " if named else ""
    parts = [name + models, device_name(facts), target["dtype"], bits, compiled, synthetic(facts)]
    return " \u00b7 ".join(filter(None, parts))


def server_line(server: ServerFacts) -> str:
    """A server in one line: its model, its engine, and its guesses."""
    engine = " ".join(filter(None, [server["engine"], server["version"]]))
    most = server["guesses"]
    speculates = {False: "no speculation", None: "it does not tell whether it speculates"}
    yes = f"up to {most} guesses a step" if most else "its server drafts and checks"
    return " \u00b7 ".join([server["model"], engine, speculates.get(server["speculation"], yes)])


_TOLD = {"rounds": "each round", "counts": "sums of its guesses", "speed": "text and speed only"}


def server_rows(server: ServerFacts) -> list[tuple[str, str]]:
    """What a server said of itself, as names and values: whether it speculates comes first."""
    most = server["guesses"]
    on = f"on, up to {most} guesses a step" if most else "on"
    return [
        ("Speculation", {False: "off", None: "not told"}.get(server["speculation"], on)),
        ("Model", server["model"]),
        ("Engine", " ".join(filter(None, [server["engine"], server["version"]]))),
        ("It tells", f"{_TOLD[server['exact']]}, {'token ids' if server['ids'] else 'no token ids'}"),
    ]


def prompts(chosen: Choice, count: int) -> str:
    """Which prompts were measured, and whether as chat messages."""
    first = f", the first {chosen.first} of each category" if chosen.first else ""
    chat = ", as chat messages" if chosen.chat else ""
    return f"{count} prompt{'s' * (count != 1)} of {chosen.name}{first}{chat}"


def synthetic(facts: PairFacts) -> str:
    """The label of a pair with a synthetic draft; empty for all others."""
    draft = facts["draft"]
    agreement = draft.get("agreement") if draft else None
    return "" if agreement is None else SYNTHETIC.format(agreement=agreement)


def title_with_label(title: str, label: str) -> str:
    """A title with the label of a synthetic measurement."""
    return f"{title} \u00b7 {label}" if label else title


def passes(facts: PairFacts) -> str:
    """Which forward each model uses and, if it is not the lean one, why."""
    models: dict[str, ModelFacts | DraftFacts | None] = {"target": facts["target"], "draft": facts["draft"]}
    known = {role: model["own_forward"] for role, model in models.items() if model and "own_forward" in model}
    if not known:
        return "not recorded"
    if any(known.values()):
        said = " ".join(
            f"{role}: {f'the forward pass of transformers. {reason}' if reason else 'lean forward pass.'}"
            for role, reason in known.items()
        )
    else:
        said = "lean forward pass; its logits were compared once with those of transformers"
    runs = _native(models)
    return f"{said.removesuffix('.')}. {runs}" if runs else said


def _native(models: Mapping[str, ModelFacts | DraftFacts | None]) -> str:
    """What runs the passes of each model over few rows; empty for a recording that does not say it."""
    found = {role: model for role, model in models.items() if model and "torch_passes" in model}
    told = {role: _runs(model) for role, model in found.items()}
    if len(set(told.values())) == 1:
        return f"Passes {next(iter(told.values()))}"
    return " ".join(f"Passes of the {role} {said}" for role, said in told.items())


def _runs(model: ModelFacts | DraftFacts) -> str:
    if reason := model["torch_passes"]:
        return f"run in torch. {reason}"
    read = " and read weights in 16 bits, which changes no logit" if model.get("in_16_bits") else ""
    return f"over few rows run in C{read}."


def head(facts: PairFacts) -> dict[str, str]:
    """What a head reads of its target, and whether it drafts in parallel, as rows; none for other drafts."""
    draft, depth = facts["draft"], facts["target"]["layers"]
    if not draft or not draft.get("layer_ids"):
        return {}
    listing = ", ".join(map(str, draft["layer_ids"]))
    rows = {"Head reads": f"hidden states {listing} (0 is the embedding, {depth} the output of the last layer)"}
    if draft.get("one_pass"):
        most = draft.get("most_guesses")
        named = {"eagle3": " (P-EAGLE)", "dspark": ", each after the one before"}.get(draft["kind"], "")
        rows["Head drafts"] = f"all guesses in one pass{f', up to {most}' if most else ''}{named}"
    return rows


def engine(facts: PairFacts) -> str:
    """The engine and, if the graph engine was asked for and did not run, the reason."""
    known = facts.get("engine")
    if known is None:
        return "not recorded"
    if known["name"] == "eager":
        return " ".join(filter(None, ["eager: each pass by itself.", known["reason"]]))
    captured = "captured as CUDA graphs" if facts["device"].startswith("cuda") else "not captured on this device"
    return f"graph: the steps of a round over fixed buffers, {captured}"


def hardware(machine: MachineFacts) -> str:
    """The device of a measurement, and how many threads it used."""
    device = machine.get("device")
    if device == "server":
        return "not known: that of the servers"
    used = [machine.get("gpu"), machine.get("cpu"), device if device != "cpu" else None]
    threads = machine.get("threads")
    cores = f"{machine['cores']} cores, {threads} thread{'s' * (threads != 1)} used" if threads else ""
    return " \u00b7 ".join(filter(None, [*used, cores]))


def device_name(facts: PairFacts) -> str:
    device = facts.get("device", "cpu")
    return device.upper() if device in {"cpu", "cuda"} else device


def _drafting(draft: DraftFacts, named: bool) -> str:
    heads = {"dflash": "DFlash head", "dspark": "DSpark head"}
    heads["eagle3"] = "P-EAGLE head" if draft.get("one_pass") else "EAGLE-3 head"
    if draft.get("kind") in heads and "name" in draft:
        return f"{heads[draft['kind']]} {draft['name']}"
    if draft.get("kind") == "combined":
        copying, _, rest = draft["text"].partition("+")
        return f"{copying} + {_model(draft, named, 'draft') if rest == draft.get('name') else rest}"
    return _model(draft, named, "draft") if "name" in draft else draft["text"]


def _model(facts: ModelFacts | DraftFacts, named: bool, role: str) -> str:
    # The models of a named pair are in folders called target and draft. Their layers say more than these names.
    name, layers = facts["name"], facts.get("layers")
    if layers is None:
        return name
    rounded = ", int8" if facts.get("dtype") == "int8" else ""
    return f"{role if named else name} ({layers} layer{'s' * (layers != 1)}{rounded})"
