"""The table of the ways to draft: what each row promises, and that a new one takes one file and one row."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny

import specdec
import specdec.cli
from specdec import entry_points
from specdec.drafters import forms, registry
from specdec.drafters.base import DraftChoices, DraftMethod, Finding, NoDraft, Proposal, after_kind
from specdec.drafters.draft_model import DraftModel
from specdec.models import loading
from specdec.models.pair_check import check_pair
from specdec.models.pair_slot import Slot
from specdec.report import recording

ROOT = Path(__file__).parents[2]
PROMPT = "Once upon a time"
TARGET = str(loading.EMBEDDED / "target")

# --- a toy: one file ... ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Echo(DraftMethod):
    """Draft the last ``back`` tokens once more."""

    kind: ClassVar[str] = "echo"
    label: ClassVar[str] = "Echo"
    form: ClassVar[str] = "echo:N to say the last N tokens again"
    example: ClassVar[str] = "echo:2"

    back: int = 1
    weights: str | None = None

    @classmethod
    def parse(cls, text: str) -> Echo | None:
        back = after_kind(text, cls.kind)
        if back is None:
            return None
        return cls(int(back)) if back.isdecimal() else cls(weights=back)

    def parts(self) -> tuple[str, ...]:
        return (self.weights,) if self.weights else ()

    def describe(self) -> dict:
        facts = {"kind": self.kind, "text": f"echo:{self.back}", "python": f"toy.Echo({self.back})"}
        return facts | {"depends_on_start": True, "more": {"back": self.back}}

    def findings(self, target, parts) -> Iterator[Finding]:
        yield Finding("good", "Cost", "An echo is free.")

    def start(self, target, vocabulary, sampler, context) -> EchoDraft:
        return EchoDraft(self.back, vocabulary, sampler.greedy, context)


class EchoDraft(NoDraft):
    def __init__(self, back: int, vocabulary: int, greedy: bool, context):
        super().__init__(vocabulary, context)
        self._back, self._vocabulary, self._greedy = back, vocabulary, greedy

    def propose(self, context, gamma, stop) -> Proposal:
        ids = torch.tensor((context.tokens[-self._back :] * gamma)[:gamma], dtype=torch.long)
        context.write(0, ids)
        q = None if self._greedy else F.one_hot(ids, self._vocabulary).float()
        return Proposal(ids, q, DraftChoices(ids, neg_log_probs=torch.zeros(gamma)))


# --- ... and one row in each of two tables ---------------------------------------------------------------------------


@pytest.fixture
def toy(monkeypatch) -> Echo:
    monkeypatch.setattr(registry, "METHODS", (*registry.METHODS, Echo))
    monkeypatch.setitem(forms.FORMS, Echo.kind, Echo.form)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # a command takes a thread from this process
    return Echo(2)


def test_a_new_method_is_on_the_command_line_and_in_a_race(toy, capsys) -> None:
    """It is in the help, it drafts in the race, and the recording says what drafted. The text stays the target's."""
    with pytest.raises(SystemExit):
        specdec.cli.main(["run", "--help"])
    assert "echo:N" in capsys.readouterr().out
    specdec.cli.main([PROMPT, "--draft", "echo:2", "--gamma", "3", "--tokens", "12", "--json"])
    events = list(recording.read_recording(capsys.readouterr().out.splitlines()))
    texts = []
    for event in events:
        if isinstance(event, specdec.Started):
            texts.append([])
            assert event.pair["draft"] == toy.describe()
        elif isinstance(event, specdec.Round):
            texts[-1] += event.committed_ids
    assert len(texts) == 3 and texts[0] == texts[1] == texts[2]
    assert any(event.draft for event in events if isinstance(event, specdec.Round))


def test_a_new_method_is_in_the_pair_check(toy, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        specdec.cli.main(["check", TARGET, "echo:2"])
    assert not ended.value.code
    assert "+ Cost: An echo is free." in capsys.readouterr().out


def test_a_new_method_is_in_a_benchmark(toy, tmp_path) -> None:
    """Measured like any other, and the export names it."""
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.json"
    prompts.write_text(json.dumps({"name": "a", "category": "b", "prompt": PROMPT}) + "\n")
    asked = ["--lanes", "generate", "speculative", "--gammas", "2", "--runs", "1", "--tokens", "32"]
    specdec.cli.main(["bench", "--draft", "echo:2", "--prompts", str(prompts), *asked, "--export", str(out)])
    found = json.loads(out.read_text())
    assert found["pair"]["draft"] == toy.describe()
    drafted = [trial["metrics"]["rejected"] for trial in found["trials"] if trial["lane"] == "speculative"]
    assert len(drafted) == 1 and drafted[0] > 0


def test_a_new_method_is_on_the_page(toy) -> None:
    """Among the choices of the pair's panel, in its check, and loaded by it."""
    gr = pytest.importorskip("gradio")
    from specdec.ui.jobs.limits import LOCAL, PUBLIC
    from specdec.ui.tabs.pair_panel import PairPanel

    slot = Slot(loading.plan_pair())
    startup = SimpleNamespace(forget=lambda: None, begin=lambda: None)
    turn = SimpleNamespace(stop=threading.Event())
    with gr.Blocks():
        panel, public = (PairPanel(slot, limits, startup) for limits in (LOCAL, replace(PUBLIC, pairs="listed")))
    labels = [label for _, label in panel.method.choices]
    first = ["Draft model", "Prompt lookup", "EAGLE-3 head"]  # what most engines offer
    lacking = ["MTP layers", "DFlash head", "DSpark head", "Gemma 4 assistant"]  # the embedded target has none of them
    others = [method.label for method in registry.METHODS if method.label not in first + lacking]
    assert labels == first + others + lacking and "Echo" in others
    choice = ("embedded", "", "echo:2", "Echo")

    def said(panel: PairPanel, *choice: str | None) -> str:
        try:
            return "".join(html for html, _ in panel.check(turn, choice))
        except specdec.SpecdecError as error:
            return str(error)

    assert "An echo is free." in said(panel, *choice)
    assert "An echo is free." in said(panel, "embedded", None, None, "Echo")  # a page that has not shown the field yet
    assert "is not a valid draft" in said(panel, "embedded", "", "early-exit:2", "Echo")
    assert "EAGLE-3 head" in said(public, "embedded <- EAGLE-3 head", None, None, "Draft model")
    # The models of a public page are those of its list, whichever method names one.
    assert "An echo is free." in said(public, *choice)
    assert "only the pairs of its list" in said(public, "embedded", "", "echo:some/model", "Echo")
    assert "no pair" in said(public, "Another pair", "some/model", "some/draft", "Draft model")
    list(panel.change(turn, choice))
    assert slot.facts["draft"] == toy.describe()


# --- another package -------------------------------------------------------------------------------------------------


@pytest.fixture
def offered(monkeypatch) -> Iterator[list[EntryPoint]]:
    """The entry points of installed packages. The first one is the toy."""
    points = [EntryPoint("echo", f"{__name__}:Echo", entry_points.DRAFTERS)]
    monkeypatch.setattr(entry_points, "entry_points", lambda group: points if group == entry_points.DRAFTERS else [])
    entry_points.loaded.cache_clear()
    yield points
    entry_points.loaded.cache_clear()


def test_a_method_of_another_package_is_named_like_the_rest(offered) -> None:
    """It takes no text of this table, and a page for strangers does not know it."""
    assert registry.method_of("echo:2") == Echo(2) and "echo, of an installed package" in forms.forms()
    assert registry.method_of("some/model") == DraftModel("some/model")
    with pytest.raises(specdec.InvalidInput, match="There is no way to draft 'echo:2'"):
        registry.method_of("echo:2", others=False)
    assert [row.kind for row in registry.methods()][-1] == "echo" and Echo not in registry.methods(others=False)


def test_a_method_of_another_package_takes_no_text_of_this_table(offered, monkeypatch) -> None:
    monkeypatch.setattr(Echo, "parse", classmethod(lambda cls, text: cls(1)))
    assert registry.method_of("prompt-lookup") == specdec.PromptLookup()


@pytest.mark.parametrize(
    "value",
    ["no_such_module:Method", f"{__name__}:NoSuchClass", f"{__name__}:PROMPT", "specdec.drafters.base:DraftMethod"],
)
def test_what_cannot_be_used_is_left_out_with_a_warning(offered, value: str) -> None:
    offered.append(EntryPoint("broken", value, entry_points.DRAFTERS))
    with pytest.warns(UserWarning, match="'broken' .* (cannot be loaded|is no whole DraftMethod)"):
        assert registry.method_of("echo:2") == Echo(2)


# --- the rows --------------------------------------------------------------------------------------------------------

NAMED = [
    ("prompt-lookup", specdec.PromptLookup()),
    ("prompt-lookup:2-5", specdec.PromptLookup(5, 2)),
    ("early-exit:3", specdec.EarlyExit(3)),
    ("suffix", specdec.Suffix()),
    ("mtp", specdec.Mtp()),
    ("eagle3:some/head", specdec.Eagle3("some/head")),
    ("gemma4-assistant:some/head", specdec.Gemma4Assistant("some/head")),
    ("some/model", DraftModel("some/model")),
    ("dflash:some/head", specdec.DFlash("some/head")),
    ("dspark:some/head", specdec.DSpark("some/head")),
    ("prompt-lookup:2-4+mtp", specdec.Combined(specdec.PromptLookup(4, 2), specdec.Mtp())),
    ("suffix+some/model", specdec.Combined(specdec.Suffix(), DraftModel("some/model"))),
    ("recycling", specdec.Recycling()),
]


@pytest.mark.parametrize(("text", "method"), NAMED)
def test_a_method_is_a_value_with_a_text(text: str, method: DraftMethod) -> None:
    assert registry.method_of(text) == method
    assert pickle.loads(pickle.dumps(method)) == method
    assert method != registry.method_of("early-exit:4")
    if not method.parts():
        assert method.describe()["text"] == text
        assert eval(method.describe()["python"], {"specdec": specdec}) == method
    if not isinstance(method, DraftModel):
        assert type(method).__name__ in specdec.__all__, "add it to the public names"


def test_every_method_is_among_those_tried_here() -> None:
    assert {type(method) for _, method in NAMED} == set(registry.METHODS), "add a line to NAMED"


def test_every_method_is_in_the_documents() -> None:
    guide, algorithm = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("guide.md", "algorithm.md"))
    for row in registry.METHODS:
        assert row.kind == "model" or f"`{row.kind}" in guide, f"add {row.kind} to the table in docs/guide.md"
        module = f"{row.__module__.rpartition('.')[2]}.py"
        assert f"`{module}`" in algorithm, f"add {module} to the table in docs/algorithm.md"


@pytest.mark.parametrize(
    "text",
    [
        "prompt_lookup", "sufix", "early-exits:2", "suffix:3", "mtp:2", "Eagle3:a/b", "mtp:" + 300 * "x", "lookup",
        "early:3", "ngram", "PLD:2-3", "nonsense:3",
    ],
)  # fmt: skip
def test_a_mistyped_way_to_draft_is_no_name_of_a_model(text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(specdec.InvalidInput, match="There is no way to draft"):
        registry.method_of(text)
    if len(text) < 100 and "/" not in text:
        (tmp_path / text).mkdir()
        assert registry.method_of(text) == DraftModel(text), "a folder may have any name"


def test_every_method_is_in_the_help_of_the_command_line() -> None:
    """In the order of the table; the help knows only the forms, because it is shown without torch."""
    assert {row.kind: row.form for row in registry.METHODS} == forms.FORMS
    assert [row.kind for row in registry.METHODS] == list(forms.FORMS), "FORMS has another order than METHODS"


def test_the_example_of_a_method_names_that_method() -> None:
    for row in registry.METHODS:
        assert not row.example or type(registry.method_of(row.example)) is row
    assert registry.method_of("") is None


NOT_COMPLETE = ["early-exit", "early-exit:", "early-exit:x", "early-exit:0", "early-exit:" + "9" * 5000,
                "prompt-lookup:3", "prompt-lookup:0-3", "prompt-lookup:4-3", "prompt-lookup:"]  # fmt: skip


@pytest.mark.parametrize("text", NOT_COMPLETE)
def test_a_text_that_is_not_complete_is_refused(text: str) -> None:
    with pytest.raises(specdec.InvalidInput):
        registry.method_of(text)


def test_a_pair_wraps_a_model_and_binds_what_drafts_to_its_target() -> None:
    target, draft = tiny("llama", 1), tiny("llama", 2, layers=1)
    pair = specdec.Pair(target, draft)
    assert pair.draft == DraftModel(draft) and pair.models(drafting=True) == [target, draft]
    early = replace(pair, draft=specdec.EarlyExit(1))
    assert early.draft == specdec.EarlyExit(1) and early.models(drafting=True) == [target]
    other = replace(early, target=tiny("llama", 3))
    (weight,), (own,) = ([p.draft.view.get_input_embeddings().weight] for p in (other, early))
    assert weight is other.target.get_input_embeddings().weight and own is target.get_input_embeddings().weight
    with pytest.raises(specdec.InvalidInput, match="load_pair takes names"):
        specdec.Pair(target, DraftModel("some/model"))


def test_the_facts_of_a_pair_are_plain_values() -> None:
    """The shape that recordings, the page and the take-home code rely on; JSON gives back the same."""
    target = shared_tiny("llama", 4, layers=3)
    drafts = (noisy_copy(target, 4), specdec.PromptLookup(), specdec.EarlyExit(2), None)
    facts = [specdec.Pair(target, draft, byte_tokenizer()).describe() for draft in drafts]
    assert json.loads(json.dumps(facts)) == facts
    model = {
        "name",
        "layers",
        "parameters",
        "dtype",
        "rows",
        "local",
        "revision",
        "bits",
        "own_forward",
        "torch_passes",
    }
    assert all(set(f) == {"name", "context", "device", "engine", "compiled", "target", "draft"} for f in facts)
    assert all(set(f["target"]) == model for f in facts)
    every = {"kind", "text", "python", "depends_on_start"}
    own = [model | {"own_tokenizer"}, {"max_ngram", "min_ngram"}, {"layers"}]
    assert [set(f["draft"]) for f in facts[:3]] == [every | names for names in own] and facts[3]["draft"] is None


# --- the pair check --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in (
        ("target", tiny("llama", 1, layers=4)),
        ("small", tiny("llama", 2, layers=1)),
        ("short", tiny("llama", 2, layers=1, context=64, vocab_size=304)),
        ("deep", tiny("llama", 2, layers=4)),
    ):
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    return root


def findings(shelf, draft) -> dict[str, tuple[str, str]]:
    """Level and sentence by topic; each topic once, apart from drafts that are suggested."""
    found = check_pair(loading.plan_pair(shelf / "target", shelf / draft if isinstance(draft, str) else draft))
    found = [finding for finding in found if finding.topic != "Draft"]
    assert len({finding.topic for finding in found}) == len(found)
    return {finding.topic: (finding.level, finding.sentence) for finding in found}


def test_a_draft_model_is_compared_with_its_target(shelf) -> None:
    small, short, deep = (findings(shelf, name) for name in ("small", "short", "deep"))
    assert small["Tokenizer"][0] == "good" and "Draft context" not in small and "Draft vocabulary" not in small
    assert short["Draft context"] == ("note", "64 tokens: this also limits the pair.")
    assert "304 rows" in short["Draft vocabulary"][1] and "320 rows" in short["Vocabulary"][1]
    assert deep["Cost"][0] == "bad"


def test_methods_without_a_second_model_have_findings_of_their_own(shelf) -> None:
    assert findings(shelf, specdec.PromptLookup())["Cost"][0] == "good"
    early = findings(shelf, specdec.EarlyExit(2))["Cost"]
    assert early[0] == "note" and "2 of 4 layers" in early[1]
    assert findings(shelf, None)["Cost"][0] == "note"
