"""The page without a server: what is written where, and what its script may consist of."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from specdec import cli
from specdec.ui import bundle
from specdec.ui.static_page import shipped_recordings, single_page


@pytest.fixture
def recording(tmp_path) -> Path:
    path = tmp_path / "race.jsonl"
    path.write_text(shipped_recordings()[0].text, encoding="utf-8")
    return path


def cards(page: str) -> list[dict]:
    return json.loads(re.search(r'id="sd-recordings">(.*?)</script>', page)[1])


def test_a_folder_and_a_file_hold_the_recordings(recording, tmp_path, capsys) -> None:
    cli.main(["page", "--static", str(tmp_path / "out"), str(recording), str(recording)])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "page.js", "page.css"}
    both = cards((tmp_path / "out" / "index.html").read_text(encoding="utf-8"))
    assert [card["name"] for card in both] == ["race", "race-2"]
    assert gzip.decompress(base64.b64decode(both[0]["packed"])).decode() == recording.read_text(encoding="utf-8")
    cli.main(["page", "--static", str(tmp_path / "new" / "one.html"), str(recording)])
    one = (tmp_path / "new" / "one.html").read_text(encoding="utf-8")
    assert len(cards(one)) == 1 and "<script src" not in one and "Wrote" in capsys.readouterr().out
    sentence = json.loads(recording.read_text(encoding="utf-8").splitlines()[-1])["sentence"]
    assert f'<meta name="description" content="{html.escape(sentence)}">' in one


def test_a_card_says_what_its_figure_is_compared_with_and_marks_a_synthetic_pair() -> None:
    shown = {card["name"]: card for card in cards(single_page(shipped_recordings()))}
    assert shown["vllm-cpu"]["baseline"] == "the plain server"
    assert shown["smollm2-letter"]["baseline"] == "plain generate"
    assert all(card["title"] for card in shown.values())
    for card in shown.values():
        speeds = card["speeds"]
        assert speeds["speculative"] / speeds["generate"] == pytest.approx(card["gain"], rel=1e-4)
    marked = {name: card["synthetic"] for name, card in shown.items() if card["synthetic"]}
    assert marked == {"h200-synthetic-7b": "Synthetic: random weights, agreement set to 0.8"}


def test_view_opens_a_file_of_its_own(recording, monkeypatch, capsys) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    cli.main(["view", str(recording)])
    assert opened[0].startswith("file://") and opened[0] in capsys.readouterr().out
    assert len(cards(Path(opened[0].removeprefix("file://")).read_text(encoding="utf-8"))) == 1
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    cli.main(["view", str(recording)])
    assert capsys.readouterr().out.startswith("Wrote ")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"\xff\xfe", "is not UTF-8 text"), (b"{}", "Line 1 is not a line of a recording")],
)
def test_a_file_that_is_no_recording_is_named(content: bytes | None, words: str, tmp_path, capsys) -> None:
    path = tmp_path / "no.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit):
        cli.main(["view", str(path)])
    said = capsys.readouterr().err
    assert words in said and str(path) in said


def test_a_place_that_cannot_be_written_is_named(recording, capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["page", "--static", str(recording / "inside.html"), str(recording)])
    assert f"{recording} cannot be written" in capsys.readouterr().err


def test_files_without_static_are_refused(recording, capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["page", str(recording)])
    assert "only for --static" in capsys.readouterr().err


def test_the_policy_allows_the_page_s_own_script_and_style_alone() -> None:
    page = single_page([])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('import x from "./b.js";\n', "another form of import or export: import x"),
        ("export default 1;\n", "another form of import or export: export default"),
        ('import { a } from "./a.js";\n', "a.js imports itself"),
    ],
)
def test_a_script_of_another_form_is_refused(source: str, words: str, tmp_path) -> None:
    (tmp_path / "a.js").write_text(source, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        bundle.script(tmp_path / "a.js")
