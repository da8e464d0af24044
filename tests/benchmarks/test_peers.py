"""The lanes of ``benchmarks.peers`` do what their names say, and it writes only its own section of the document."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from fakes import byte_tokenizer, noisy_copy, tiny
from transformers import DynamicCache, StaticCache

import specdec
from benchmarks import peers
from benchmarks.document import marks, with_section
from specdec.engine.request import Request, make_request
from specdec.lanes.race import start
from specdec.lanes.table import LANES, row_of

PARAMS = specdec.SamplingParams(32, ignore_eos=True)


@pytest.fixture
def compiled(monkeypatch) -> list:
    """A list of the calls of functions given to ``torch.compile``: one entry a call. Nothing is compiled."""
    calls: list = []

    def counting(function, **options):
        return lambda *args, **kwargs: calls.append(options) or function(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", counting)
    return calls


def pair_of(draft=None) -> specdec.Pair:
    target = tiny("llama", 3, context=512)
    return specdec.Pair(target, draft or noisy_copy(target, 1), byte_tokenizer())


def ids_of(request: Request, key: str) -> list[int]:
    return specdec.collect(specdec.driven(start(request, row_of(key).lane_config(3)))).token_ids


@pytest.mark.parametrize(
    ("key", "cache", "compiles", "drafts"),
    [
        ("generate-static", StaticCache, False, False),
        ("generate-static-compiled", StaticCache, True, False),
        ("assisted-draft-compiled", DynamicCache, True, True),
        ("transformers-lookup", DynamicCache, False, True),
    ],
)
def test_each_peer_is_what_it_is_called(key, cache, compiles, drafts, compiled) -> None:
    pair = pair_of()
    request = make_request(pair, torch.tensor([5, 6, 7, 5, 6, 7, 5, 6, 7]), PARAMS)
    passes = []
    with peers.on_the_table(peers.peers(pair, room=64)):
        plain = ids_of(request, "generate")
        pair.target.register_forward_pre_hook(
            lambda module, args, given: passes.append((given["past_key_values"], given["input_ids"].shape[1])),
            with_kwargs=True,
        )
        assert ids_of(request, key) == plain
    assert {type(used) for used, _ in passes} == {cache}
    assert bool(compiled) == compiles and any(width > 1 for _, width in passes[1:]) == drafts
    if cache is StaticCache:
        assert {used.layers[0].max_cache_len for used, _ in passes} == {64}


@pytest.fixture
def program(monkeypatch, tmp_path, compiled) -> Iterator:
    """Run the benchmark with a tiny pair and return the document it writes."""
    monkeypatch.setattr(peers, "leave_a_core", lambda: None)
    monkeypatch.setattr(peers, "silence_libraries", lambda: None)
    items = peers.read_prompts(peers.EXAMPLES)[:2]
    monkeypatch.setattr(peers, "read_prompts", lambda path: items)
    document = tmp_path / "performance.md"
    document.write_text("# Performance\n\nWritten by hand.\n")

    def run(pair: specdec.Pair, *more: str) -> str:
        monkeypatch.setattr(peers, "pair_of", lambda arguments: pair)
        peers.main(["--tokens", "32", "--runs", "1", "--gamma", "3", "--document", str(document), *more])
        return document.read_text()

    return run


@pytest.mark.full
def test_every_lane_is_in_the_document_with_its_number_of_equal_texts(program) -> None:
    before = list(LANES)
    written = program(pair_of())
    assert written.startswith("# Performance\n\nWritten by hand.\n")
    with peers.on_the_table(peers.peers(pair_of(), 1)):
        labels = {key: peers._name(row_of(key).lane_config(3)) for key in peers.KEYS}
    lines = {
        key: next(line for line in written.splitlines() if line.startswith(f"| {labels[key]} |")) for key in labels
    }
    assert all("| 2 of 2 |" in line for line in lines.values())
    assert {key for key, line in lines.items() if line.endswith(" s |")} == set(peers.COMPILED)
    assert "Not measured" not in written and "--gamma 3" in written
    assert before == LANES, "the rows are the benchmark's own"


def test_a_lane_that_cannot_run_is_listed_with_the_reason(program, monkeypatch) -> None:
    whole = peers.transformers_lane

    def without_compiler(call, **extra):
        if "compile_config" in extra:
            raise RuntimeError("no working compiler\nand more lines")
        return whole(call, **extra)

    monkeypatch.setattr(peers, "transformers_lane", without_compiler)
    written = program(pair_of(specdec.PromptLookup()))
    missing = [line for line in written.splitlines() if line.startswith("Not measured: ")]
    assert len(missing) == 2  # and one that needs a draft model
    assert any("static cache, compiled" in line and "no working compiler" in line for line in missing)
    assert sum("draft compiled" in line and "draft model" in line for line in missing) == 1
    assert "and more lines" not in written and "our speculative decoding" in written


def test_a_section_without_marks_is_added_at_the_end() -> None:
    begin, end = marks("peers")
    document = with_section("# Title\n\nBy hand.\n", "peers", "one")
    assert document == f"# Title\n\nBy hand.\n\n{begin}\none\n{end}\n"
    assert with_section(f"{document}\nBehind.\n", "peers", "two\n") == document.replace("one", "two") + "\nBehind.\n"


def test_sections_of_other_commands_stay() -> None:
    document = with_section(with_section("# Title\n", "peers", "one"), "other", "two")
    assert with_section(document, "peers", "three") == document.replace("one", "three")


def test_a_lost_mark_is_refused_before_anything_is_measured(program, tmp_path) -> None:
    begin, _ = marks("peers")
    (tmp_path / "performance.md").write_text(f"# Performance\n{begin}\nold\n")
    with pytest.raises(SystemExit, match="/peers"):
        program(None)


class Server(BaseHTTPRequestHandler):
    """Streams ``written`` in parts of two tokens, and keeps what it was asked."""

    written: list[int]
    asked: list[dict]

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]}), "application/json")

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        most = self.asked[-1]["max_tokens"]
        parts = [{"choices": [{"text": "", "token_ids": self.written[at : at + 2]}]} for at in range(0, most, 2)]
        parts[-1]["choices"][0]["finish_reason"] = "length"
        lines = [json.dumps(part) for part in [{"choices": [{"text": "", "token_ids": None}]}, *parts]]
        self._answer("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]), "text/event-stream")

    def _answer(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())


def test_a_server_is_a_lane(program) -> None:
    pair = pair_of()
    prompts = [item.message(pair.tokenizer) for item in peers.read_prompts(None)]
    first = specdec.collect(specdec.generate(pair, prompts[0], params=PARAMS)).token_ids
    Server.written, Server.asked = first, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    written = program(pair, "--server", f"a server={address}", "--server", "another=http://127.0.0.1:9")
    server.shutdown()
    server.server_close()
    line = next(line for line in written.splitlines() if line.startswith("| a server |"))
    assert "| 2.00 |" in line and "| 1 of 2 |" in line  # it writes the first prompt's text after both
    assert "Not measured: another. " in written
    assert Server.asked[0]["prompt"] == pair.tokenizer(prompts[0]).input_ids
    assert Server.asked[0]["max_tokens"] == 32 and Server.asked[0]["temperature"] == 0


@pytest.mark.parametrize("asked", [["--gamma", "17"], ["--dtype", "bf16"], ["--server", "127.0.0.1:8000"]])
def test_what_cannot_be_run_is_refused_in_a_sentence(tmp_path, capsys, monkeypatch, asked: list[str]) -> None:
    monkeypatch.setattr(peers, "leave_a_core", lambda: None)
    monkeypatch.setattr(peers, "silence_libraries", lambda: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # the program sets it; this puts it back
    (tmp_path / "performance.md").write_text("# Performance\n")
    with pytest.raises(SystemExit) as refused:
        peers.main([*asked, "--document", str(tmp_path / "performance.md")])
    assert asked[1] in f"{refused.value} {capsys.readouterr().err}"
