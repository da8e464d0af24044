"""A race that a visitor asks for, in three forms: the fields of the page, a value, and a link."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specdec.engine.policy import CONFIDENCE, ConfidenceStop, gamma_of
from specdec.errors import BadSetting, InvalidInput, SpecdecError, quoted, with_names
from specdec.events import MAX_GAMMA, Event, SamplingParams
from specdec.lanes.race import race
from specdec.lanes.table import DEFAULT_KEYS, LANES, entrants_of_race, turned
from specdec.measure.task import Task
from specdec.ui.fields import LABELS, number, number_field, parsed
from specdec.ui.limits import Limits
from specdec.ui.work import INTERNAL

GAMMA = 5
NEW_TOKENS = 128
REPEATS = 5
FIXED, AUTO, STOP = "fixed", "auto", "confidence"  # how the draft length is chosen
_CHOICES = [("fixed", FIXED), ("auto (each round)", AUTO), ("stop below confidence", STOP)]
LEAST_CONFIDENCE = 0.4


@dataclass(frozen=True, slots=True)
class Ask:
    """A race that a visitor asks for. The engine checks the values."""

    prompt: str
    gamma: int | str = GAMMA
    params: SamplingParams = SamplingParams(max_new_tokens=NEW_TOKENS)
    acceptance: str = "lossless"
    accept_top_k: int | None = None
    lanes: tuple[str, ...] = DEFAULT_KEYS  # of ``LANES``
    runs: int = 1
    until_clear: bool = False  # run again until the verdict is clear (``report.enough``)
    chat: bool = False

    def again(self, made: int, seed: int | None) -> Ask:
        """One more run after ``made`` ones, with their seed. Another lane is first in each."""
        return replace(self, lanes=turned(self.lanes, made), params=replace(self.params, seed=seed), runs=1)

    @property
    def message(self) -> str | list[dict[str, str]]:
        """The prompt for the engine."""
        return [{"role": "user", "content": self.prompt}] if self.chat and self.prompt else self.prompt

    @property
    def keys(self) -> list[str]:
        """The lanes that run, each once."""
        return list(entrants_of_race(self.lanes, self.gamma))

    @property
    def task(self) -> Task[list[Event]]:
        """The race, for the device."""
        names = ("gamma", "params", "acceptance", "accept_top_k", "lanes", "runs")
        settings = {name: getattr(self, name) for name in names}
        return Task(partial(race, prompt=self.message, **settings), self.tokens)

    @property
    def tokens(self) -> int:
        """New tokens of all lanes and runs, at most."""
        return self.params.max_new_tokens * len(self.keys) * self.runs

    def settings(self) -> dict[str, Any]:
        """The settings for a link or a recording: prompt and chat always, others if they differ from the default."""
        values = {name: getattr(self.params, field) for name, field in _PARAMS.items()}
        values |= {"gamma": self.gamma, "accept_top_k": self.accept_top_k, "ignore_eos": int(self.params.ignore_eos)}
        values |= {"block": int(self.acceptance == "block")}
        values |= {"lanes": ",".join(lane for lane in self.lanes if lane in _further_keys())}
        changed = {name: value for name, value in values.items() if value != _DEFAULTS[name]}
        return {"prompt": self.prompt, "chat": int(self.chat)} | changed


# The names in a link, each with its field of ``SamplingParams``.
_PARAMS = {
    "tokens": "max_new_tokens", "temperature": "temperature", "seed": "seed", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "penalty": "repetition_penalty",
}  # fmt: skip
_DEFAULTS = {
    "gamma": GAMMA, "tokens": NEW_TOKENS, "temperature": 0.0, "seed": None, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
    "penalty": 1.0, "ignore_eos": 0, "accept_top_k": None, "block": 0, "lanes": "", "chat": 0,
}  # fmt: skip


_SWITCHES = {"block", "ignore_eos", "chat"}  # 0 or 1


_FIELDS = (
    "prompt", "gamma", "choice", "confidence", "tokens", "temperature", "lanes", "seed", "top_k", "top_p", "min_p",
    "penalty", "accept_top_k", "block", "ignore_eos", "chat",
)  # fmt: skip


_NUMBERS = {name: LABELS[field] for name, field in _PARAMS.items() if name != "seed"}


class AskPanel:
    """The fields of a race. Turns their values into an ``Ask``, and a link into their values."""

    def __init__(self, limits: Limits):
        self._limits = limits

    def prompt_field(self, example: str) -> gr.Textbox:
        self.prompt = gr.Textbox(example, label="Prompt", lines=4, max_lines=12, elem_id="sd-prompt")
        return self.prompt

    def setting_fields(self) -> None:
        """Draft length, new tokens and temperature are visible; the rest is folded."""
        most = self._limits.new_tokens
        with gr.Row():
            self.gamma = number_field(GAMMA, LABELS["gamma"], info=f"0 to {MAX_GAMMA}", elem_id="sd-gamma")
            tokens = min(NEW_TOKENS, most)
            self.tokens = number_field(tokens, LABELS["max_new_tokens"], info=f"up to {most}", elem_id="sd-tokens")
            temperature = {"info": "0 is greedy", "step": 0.05, "elem_id": "sd-temperature"}
            self.temperature = number_field(0, LABELS["temperature"], **temperature)
        with gr.Row():
            self.choice = gr.Radio(_CHOICES, value=FIXED, label="How \u03b3 is chosen", elem_id="sd-choice", scale=3)
            self.confidence = number_field(
                LEAST_CONFIDENCE, LABELS["least_confidence"], step=0.1, interactive=False, elem_id="sd-confidence"
            )
        with gr.Accordion("Settings", open=False, elem_id="sd-more"):
            self.lanes = gr.CheckboxGroup(
                [(lane.choice, lane.key) for lane in LANES if not lane.race], label="Further lanes", elem_id="sd-lanes"
            )
            with gr.Row():
                self.seed = gr.Textbox("", label=LABELS["seed"], placeholder="random", max_lines=1, min_width=90)
                self.top_k = number_field(0, f"{LABELS['top_k']} (0: all)")
                self.top_p = number_field(1, LABELS["top_p"], step=0.05)
            with gr.Row():
                self.min_p = number_field(0, LABELS["min_p"], step=0.05)
                self.penalty = number_field(1, LABELS["repetition_penalty"], step=0.05)
                self.accept = gr.Textbox(
                    "", label=LABELS["accept_top_k"], placeholder="off", max_lines=1, min_width=90, elem_id="sd-accept",
                )  # fmt: skip
            with gr.Row():
                self.block = gr.Checkbox(
                    False, label="Block verification", elem_id="sd-block",
                    info="When sampling, judge the draft as a whole: lossless, and more guesses are kept.",
                )  # fmt: skip
                self.ignore_eos = gr.Checkbox(False, label=LABELS["ignore_eos"], elem_id="sd-ignore")

    def chat_field(self) -> None:
        self.chat = gr.Checkbox(label="Chat", elem_id="sd-chat")

    @property
    def lengths(self) -> list[Any]:
        """The fields for the draft length."""
        return [self.gamma, self.choice, self.confidence]

    def length_values(self, gamma: int | str) -> list[Any]:
        """The values of these fields for a draft length."""
        return list(_lengths(gamma).values())

    def wire(self) -> None:
        """Lock fields that have no effect, and name their settings for the errors about them (``errors.js``)."""
        for name, field in zip(_FIELDS, self.inputs, strict=True):
            field.elem_classes = [*field.elem_classes, f"sd-of-{'gamma' if field in self.lengths else name}"]

        def enable(choice: str) -> tuple[Any, Any]:
            return gr.update(interactive=choice == FIXED), gr.update(interactive=choice == STOP)

        self.choice.change(enable, self.choice, [self.gamma, self.confidence], queue=False, **INTERNAL)

    @property
    def inputs(self) -> list[Any]:
        """The fields, in the order of ``_FIELDS``."""
        return [
            self.prompt, *self.lengths, self.tokens, self.temperature, self.lanes, self.seed, self.top_k, self.top_p,
            self.min_p, self.penalty, self.accept, self.block, self.ignore_eos, self.chat,
        ]  # fmt: skip

    def read(self, *values: Any) -> Ask:
        """The fields' values as an ``Ask``. Raises ``InvalidInput`` for values that make no sense."""
        given = dict(zip(_FIELDS, values, strict=True))
        if not isinstance(given["lanes"], list):
            raise InvalidInput("The further lanes are not a list. Nothing ran.")
        numbers = dict(_NUMBERS)
        if given["choice"] == AUTO:
            given["gamma"] = AUTO
        elif given["choice"] == STOP:
            least = number(LABELS["least_confidence"], given["confidence"])
            given["gamma"] = str(ConfidenceStop(least_confidence=least))
        elif given["choice"] == FIXED:
            numbers["gamma"] = LABELS["gamma"]
        else:
            raise InvalidInput("The request does not say how \u03b3 is chosen. Nothing ran.")
        given |= {name: number(label, given[name]) for name, label in numbers.items()}
        given |= {name: _whole_text(given[name]) for name in ("seed", "accept_top_k")}
        given["seed"] = _exact(given["seed"])
        return _ask(given | {"prompt": given["prompt"] or ""})

    def ask_of(self, settings: dict[str, Any], runs: int | None = None) -> Ask:
        """The race of a recording's settings; without ``runs`` until it is clear. Raises what ``read`` raises."""
        values: dict[str, Any] = _DEFAULTS | {"prompt": ""}
        for name, text in settings.items():
            try:
                values[name] = self._value(name, str(text))
            except SpecdecError as error:
                raise InvalidInput(
                    f"This run's {name} {quoted(text)} cannot be used here ({_clause(error)}). Nothing ran."
                ) from error
        return _ask(values | {"lanes": values["lanes"].split(",")}, runs)

    def restore(self, link: dict[str, Any], chat: bool) -> tuple[list[Any], dict[str, str]]:
        """The fields' values from a link, and for each setting that could not be used a sentence, by its name.

        Fields that the link does not name stay as they are. ``chat``: the pair has a chat template.
        """
        problems = {}
        taken: dict[str, Any] = {}
        for name, text in link.items():
            try:
                taken[name] = self._value(name, str(text))
                if name == "chat" and taken[name] and not chat:
                    raise InvalidInput("the pair has no chat template")
            except SpecdecError as error:
                left = (
                    "it is left out" if _DEFAULTS.get(name, "") in ("", None) else f"{_DEFAULTS[name]} is used instead"
                )
                problems[name] = f"The link's {name[:40]} {quoted(text)} was not used ({_clause(error)}); {left}."
                taken.pop(name, None)
        if "gamma" in taken:
            taken |= _lengths(taken["gamma"])
        if "lanes" in taken:
            taken["lanes"] = [lane for lane in taken["lanes"].split(",") if lane]
        for name in {"seed", "accept_top_k"} & taken.keys():
            taken[name] = str(taken[name])
        for name in _SWITCHES & taken.keys():
            taken[name] = bool(taken[name])
        return [taken.get(name, gr.skip()) for name in _FIELDS], problems

    def _value(self, name: str, text: str) -> Any:
        """One value of a link, checked by the engine's own rules."""
        if name == "prompt":
            return text
        if name in _PARAMS:
            value = parsed(text, float if isinstance(_DEFAULTS[name], float) else int)
            given: dict[str, Any] = {_PARAMS[name]: value}
            SamplingParams(**given)
            if name == "tokens" and value > self._limits.new_tokens:
                raise InvalidInput(f"above {self._limits.new_tokens}")
            return _exact(value) if name == "seed" else value
        if name == "gamma":
            return gamma_of(text)
        if name == "lanes":
            if unknown := set(filter(None, text.split(","))) - set(_further_keys()):
                raise InvalidInput(f"there is no lane {', '.join(sorted(unknown))}")
            return text
        if name not in _DEFAULTS:
            raise InvalidInput("no such setting")
        if (value := parsed(text, int)) not in (0, 1) and name in _SWITCHES:
            raise InvalidInput("neither 0 nor 1")
        if name == "accept_top_k" and value < 1:
            raise InvalidInput("below 1")
        return value


def cause_of(name: str) -> str:
    """The setting of a link whose field mends an error about it; empty if no field has it."""
    return name if name in _DEFAULTS else ""


def _clause(error: Exception) -> str:
    """The text of an error as a part of another sentence."""
    return with_names(error, LABELS).rstrip(".")


def _ask(values: dict[str, Any], runs: int | None = None) -> Ask:
    """A race from values under the names of a link, with the lanes as a list; without ``runs`` until it is clear."""
    kept = values["accept_top_k"]
    if kept is not None and values["block"]:
        raise InvalidInput("Block verification and lossy top-k acceptance exclude each other. Turn one of them off.")
    return Ask(
        prompt=values["prompt"],
        gamma=values["gamma"],
        params=SamplingParams(
            **{field: values[name] for name, field in _PARAMS.items()}, ignore_eos=bool(values["ignore_eos"])
        ),
        acceptance="top-k" if kept is not None else "block" if values["block"] else "lossless",
        accept_top_k=kept,
        lanes=(*DEFAULT_KEYS, *(lane for lane in _further_keys() if lane in values["lanes"])),
        runs=runs or 1,
        until_clear=runs is None,
        chat=bool(values["chat"]),
    )


def _lengths(gamma: int | str) -> dict[str, Any]:
    """The values of the fields for the draft length. A field without effect keeps its value."""
    if isinstance(gamma, int):
        return {"gamma": gamma, "choice": FIXED, "confidence": gr.skip()}
    stop = gamma.startswith(CONFIDENCE)
    confidence = float(gamma.removeprefix(CONFIDENCE)) if stop else gr.skip()
    return {"gamma": gr.skip(), "choice": STOP if stop else AUTO, "confidence": confidence}


def _further_keys() -> list[str]:
    """The lanes that run only if the visitor chooses them."""
    return [lane.key for lane in LANES if not lane.race]


def _exact(seed: Any) -> Any:
    """The seed if a browser keeps it exactly: browsers round whole numbers above 2^53."""
    if isinstance(seed, int) and seed > 2**53 - 1:
        raise BadSetting(
            f"seed is {seed}, above {2**53 - 1}, the largest whole number that a browser stores exactly. "
            "Use a smaller seed."
        )
    return seed


def _whole_text(text: Any) -> Any:
    """The number in a text field, which may be empty. Other text is passed on, and the engine refuses it."""
    text = text.strip() if isinstance(text, str) else text or ""
    if not isinstance(text, str):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d{1,30}", text) else text or None
