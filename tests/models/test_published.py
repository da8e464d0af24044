"""What ``specdec check TARGET`` says could draft: the target's own ways, and what others have published for it."""

from __future__ import annotations

import re

import pytest
from fakes import byte_tokenizer, tiny

import specdec.cli
from specdec.drafters import registry
from specdec.models import pair_check
from specdec.models.presets import PRESETS
from specdec.models.published import PUBLISHED, published_for
from specdec.report.engine_flags import serving

KINDS = {row.kind: row for row in registry.METHODS}


@pytest.mark.parametrize("draft", PUBLISHED, ids=lambda draft: draft.text)
def test_what_is_published_can_be_asked_for(draft) -> None:
    """Its text names its way to draft, its ids are hub ids, and it says where it was read."""
    assert isinstance(registry.method_of(draft.text), KINDS[draft.kind])
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in (draft.target, draft.name)) and draft.source


def test_a_target_is_found_by_its_id_whatever_its_capitals() -> None:
    assert published_for("qwen/qwen3-8b") == published_for("Qwen/Qwen3-8B") != []
    assert published_for("./Qwen3-8B") == published_for("") == []
    both = {(draft.target, draft.text) for draft in PUBLISHED}
    assert len(both) == len(PUBLISHED), "one draft stands twice"


def test_the_list_of_pairs_agrees_with_what_is_published() -> None:
    """A pair of the page's list whose target is in the table has its draft there too."""
    for preset in PRESETS:
        known = [name for draft in published_for(preset.target or "") for name in (draft.text, draft.name)]
        assert not known or preset.draft in (*known, "mtp"), preset.name


def test_a_check_without_a_draft_lists_what_could_draft(tmp_path, capsys, monkeypatch) -> None:
    folder = tmp_path / "target"
    tiny("qwen3", 0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    monkeypatch.setattr(pair_check, "published_for", lambda name: published_for("Qwen/Qwen3-8B"))
    monkeypatch.setattr("specdec.cli.check.published_for", lambda name: published_for("Qwen/Qwen3-8B"))
    with pytest.raises(SystemExit) as ended:
        specdec.cli.main(["check", str(folder)])
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    for text in ("prompt-lookup. ", "early-exit:1. ", "RedHatAI/Qwen3-8B-speculator.eagle3. ", "was not tried here"):
        assert text in said, text
    assert "mtp. " not in said, "this target has no such layers"
    assert '"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 5' in said


@pytest.mark.parametrize("kind", KINDS)
def test_servers_are_told_only_what_they_can_do(kind: str) -> None:
    """A way that a server does not have gives it no flags; the others name the draft where there is one."""
    flags = serving(kind, "some/draft", 4)
    assert all(flags.values())
    for engine in ("vLLM", "SGLang"):
        said = next((text for name, text in flags.items() if name.startswith(engine)), "")
        needs = kind in ("model", "eagle3", "dflash", "dspark", "gemma4-assistant")
        assert ("some/draft" in said) == (needs and bool(said)), (kind, engine)
    assert not serving("no such way", "some/draft", 4)


def test_a_mixture_of_experts_is_warned_that_checking_grows(tmp_path, capsys) -> None:
    for kind, warned in (("mixtral", True), ("qwen3", False)):
        folder = tmp_path / kind
        tiny(kind, 0).save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
        with pytest.raises(SystemExit):
            specdec.cli.main(["check", str(folder)])
        said = " ".join(capsys.readouterr().out.split())
        assert ("Experts: A token reads" in said) == warned, said
        assert "Checking: On a CPU a check of several tokens takes longer" in said
