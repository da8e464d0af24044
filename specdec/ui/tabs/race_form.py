"""The fields of a race: their values as the settings of a race, and a link's settings as their values."""

from __future__ import annotations

import re
from typing import Any

import gradio as gr

from specdec.engine.policy import CONFIDENCE, ConfidenceStop
from specdec.errors import InvalidInput, SpecdecError, quoted
from specdec.events import MAX_GAMMA
from specdec.lanes.table import LANES
from specdec.report.link_settings import DEFAULTS, GAMMA, PARAMS
from specdec.ui.fields import LABELS, number_field, read_number
from specdec.ui.jobs import startup
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_settings import SWITCHES, RaceSettings, clause, exact, from_values, value_of
from specdec.ui.jobs.submit import INTERNAL
from specdec.ui.tabs.grammar_field import grammar_fields, grammar_from_fields

FIXED, AUTO, STOP = "fixed", "auto", "confidence"  # how the draft length is chosen
_CHOICES = [("fixed", FIXED), ("auto (each round)", AUTO), ("stop below confidence", STOP)]
LEAST_CONFIDENCE = 0.4

FORM_FIELDS = (
    "prompt", "gamma", "choice", "confidence", "tokens", "temperature", "lanes", "seed", "top_k", "top_p", "min_p",
    "penalty", "accept_top_k", "block", "ignore_eos", "chat", "grammar", "grammar_text",
)  # fmt: skip


_NUMBERS = {name: LABELS[field] for name, field in PARAMS.items() if name != "seed"}


class RaceForm:
    """The fields of a race. Turns their values into settings, and a link into their values."""

    def __init__(self, limits: Limits):
        self._limits = limits

    @property
    def first_tokens(self) -> int:
        """The new tokens that the form has at first: as in the race at start-up, which the page shows first."""
        return min(startup.TOKENS, self._limits.new_tokens)

    def prompt_field(self, example: str) -> gr.Textbox:
        self.prompt = gr.Textbox(example, label="Prompt", lines=4, max_lines=12, elem_id="sd-prompt")
        return self.prompt

    def setting_fields(self) -> None:
        """Draft length, new tokens and temperature are visible; the rest is folded."""
        most = self._limits.new_tokens
        with gr.Row():
            self.gamma = number_field(GAMMA, LABELS["gamma"], info=f"0 to {MAX_GAMMA}", elem_id="sd-gamma")
            self.tokens = number_field(
                self.first_tokens, LABELS["max_new_tokens"], info=f"up to {most}", elem_id="sd-tokens"
            )
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

    def grammar_fields(self) -> None:
        """What the text must obey."""
        self.grammar, self.grammar_text = grammar_fields("sd-grammar")

    @property
    def lengths(self) -> list[Any]:
        """The fields for the draft length."""
        return [self.gamma, self.choice, self.confidence]

    def length_values(self, gamma: int | str) -> list[Any]:
        """The values of these fields for a draft length."""
        return list(_lengths(gamma).values())

    def wire(self) -> None:
        """Lock fields that have no effect, and name their settings for the errors about them (``errors.js``)."""
        for name, field in zip(FORM_FIELDS, self.inputs, strict=True):
            field.elem_classes = [*field.elem_classes, f"sd-of-{'gamma' if field in self.lengths else name}"]

        def enable(choice: str) -> tuple[Any, Any]:
            return gr.update(interactive=choice == FIXED), gr.update(interactive=choice == STOP)

        self.choice.change(enable, self.choice, [self.gamma, self.confidence], queue=False, **INTERNAL)

    @property
    def inputs(self) -> list[Any]:
        """The fields, in the order of ``FORM_FIELDS``."""
        return [
            self.prompt, *self.lengths, self.tokens, self.temperature, self.lanes, self.seed, self.top_k, self.top_p,
            self.min_p, self.penalty, self.accept, self.block, self.ignore_eos, self.chat, self.grammar,
            self.grammar_text,
        ]  # fmt: skip

    def read(self, *values: Any) -> RaceSettings:
        """The fields' values as settings. Raises ``InvalidInput`` for values that make no sense."""
        given = dict(zip(FORM_FIELDS, values, strict=True))
        if not isinstance(given["lanes"], list):
            raise InvalidInput("The further lanes are not a list. Nothing ran.")
        numbers = dict(_NUMBERS)
        if given["choice"] == AUTO:
            given["gamma"] = AUTO
        elif given["choice"] == STOP:
            least = read_number(LABELS["least_confidence"], given["confidence"])
            given["gamma"] = str(ConfidenceStop(least_confidence=least))
        elif given["choice"] == FIXED:
            numbers["gamma"] = LABELS["gamma"]
        else:
            raise InvalidInput("The request does not say how \u03b3 is chosen. Nothing ran.")
        given |= {name: read_number(label, given[name]) for name, label in numbers.items()}
        given |= {name: _whole_text(given[name]) for name in ("seed", "accept_top_k")}
        given["seed"] = exact(given["seed"])
        given["grammar"] = grammar_from_fields(given["grammar"], given.pop("grammar_text"))
        return from_values(given | {"prompt": given["prompt"] or ""})

    def restore(self, link: dict[str, Any], chat: bool) -> tuple[list[Any], dict[str, str]]:
        """The fields' values from a link, and for each setting that could not be used a sentence, by its name.

        Fields that the link does not name stay as they are. ``chat``: the pair has a chat template.
        """
        problems = {}
        taken: dict[str, Any] = {}
        for name, text in link.items():
            try:
                taken[name] = value_of(name, str(text), self._limits)
                if name == "chat" and taken[name] and not chat:
                    raise InvalidInput("the pair has no chat template")
            except SpecdecError as error:
                left = "it is left out" if DEFAULTS.get(name, "") in ("", None) else f"{DEFAULTS[name]} is used instead"
                problems[name] = f"The link's {name[:40]} {quoted(text)} was not used ({clause(error)}); {left}."
                taken.pop(name, None)
        if "gamma" in taken:
            taken |= _lengths(taken["gamma"])
        if grammar := taken.get("grammar"):
            taken |= {"grammar": grammar.kind, "grammar_text": grammar.text}
        if "lanes" in taken:
            taken["lanes"] = [lane for lane in taken["lanes"].split(",") if lane]
        for name in {"seed", "accept_top_k"} & taken.keys():
            taken[name] = str(taken[name])
        for name in SWITCHES & taken.keys():
            taken[name] = bool(taken[name])
        return [taken.get(name, gr.skip()) for name in FORM_FIELDS], problems


def cause_of(name: str) -> str:
    """The setting of a link whose field mends an error about it; empty if no field has it."""
    return name if name in DEFAULTS else ""


def _lengths(gamma: int | str) -> dict[str, Any]:
    """The values of the fields for the draft length. A field without effect keeps its value."""
    if isinstance(gamma, int):
        return {"gamma": gamma, "choice": FIXED, "confidence": gr.skip()}
    stop = gamma.startswith(CONFIDENCE)
    confidence = float(gamma.removeprefix(CONFIDENCE)) if stop else gr.skip()
    return {"gamma": gr.skip(), "choice": STOP if stop else AUTO, "confidence": confidence}


def _whole_text(text: Any) -> Any:
    """The number in a text field, which may be empty. Other text is passed on, and the engine refuses it."""
    text = text.strip() if isinstance(text, str) else text or ""
    if not isinstance(text, str):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d{1,30}", text) else text or None
