"""A light real server: two of ``transformers serve``, raced, measured and compared by the command.

It streams a chunk for each token and tells neither ids nor rounds; its list of models fails without the hub.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from needed import require
from transformers.utils.import_utils import is_serve_available

from specdec.measure.results.format import read_results
from specdec.measure.summary import summarise

TARGET = str(Path(__file__).parents[2] / "specdec" / "embedded" / "target")
START = 120.0  # seconds


@pytest.fixture(scope="module")
def urls(tmp_path_factory) -> Iterator[list[str]]:
    """Two servers of the embedded target, once they answer."""
    require(None if is_serve_available() else "transformers cannot serve; pip install -r tests/requirements.txt")
    folder = tmp_path_factory.mktemp("serve")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    processes, found = [], []
    try:
        for place in range(2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = [sys.executable, "-m", "transformers.cli.transformers", "serve", TARGET]
            with (folder / f"{place}.log").open("w") as log:
                processes.append(
                    subprocess.Popen(
                        [*command, "--host", "127.0.0.1", "--port", str(port)],
                        stdout=log, stderr=log, env=environment, cwd=folder,
                    )
                )  # fmt: skip
            found.append(f"http://127.0.0.1:{port}")
        for place, url in enumerate(found):
            _wait(url, processes[place], folder / f"{place}.log")
        yield found
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")


def run(*words: str, command: str = "servers") -> subprocess.CompletedProcess:
    command_line = [sys.executable, "-m", "specdec", command, *words]
    return subprocess.run(command_line, capture_output=True, text=True, timeout=300)


@pytest.mark.full
def test_a_race_of_two_light_servers(urls, tmp_path) -> None:
    file = tmp_path / "race.jsonl"
    words = [f"plain={urls[0]}", f"other={urls[1]}", "Once upon a time", "--model", TARGET]
    result = run(*words, "--tokens", "8", "--runs", "1", "--export", str(file))
    assert result.returncode == 0, result.stderr
    assert "other: " in result.stdout and "OpenAI-compatible server" in result.stdout
    assert "\nIdentical text.\n" in result.stdout
    assert "It told nothing of its rounds: text and speed only." in result.stdout
    written = file.read_text(encoding="utf-8")
    assert not any(url.removeprefix("http://") in written for url in urls)
    lines = [json.loads(line) for line in written.splitlines()]
    assert len(lines) > 16 and len({line.get("lane") for line in lines} - {None}) == 2


@pytest.mark.full
def test_prompts_texts_and_load_of_two_light_servers(urls, tmp_path) -> None:
    prompts, results = tmp_path / "two.jsonl", tmp_path / "found.jsonl"
    prompts.write_text('{"prompt": "Once upon a time"}\n{"prompt": "One day, Tom"}\n')
    words = [f"plain={urls[0]}", f"other={urls[1]}", "--model", TARGET, "--prompts", str(prompts)]
    bench = run(*words, "--tokens", "32", "--runs", "1", "--export", str(results))
    assert bench.returncode == 0, bench.stderr
    assert "over the plain server" in " ".join(bench.stdout.split()) and "not told" in bench.stdout
    found = read_results(results.read_text(encoding="utf-8"), results.name)
    assert len(found.trials) == 4 and summarise(found.trials)[-1].same == 2
    texts = run(*words, "--tokens", "8", command="lossless")
    assert texts.returncode == 0, texts.stderr
    assert "Same text: other writes what plain writes on all 2 prompts." in texts.stdout
    load = run(*words, "--tokens", "8", "--at-once", "2", "--runs", "1", command="load")
    assert load.returncode == 0, load.stderr
    assert "At once" in load.stdout and "plain" in load.stdout


@pytest.mark.full
def test_what_a_light_server_cannot_do_is_said(urls) -> None:
    servers = [f"plain={urls[0]}", f"other={urls[1]}", "Once"]
    refused = run(*servers, "--model", TARGET, "--tokens", "8", "--top-k", "5")
    assert refused.returncode == 1 and "--top-k is set, but a server of an unknown engine" in refused.stderr
    unnamed = run(*servers)
    assert unnamed.returncode == 1 and "name its model with --model" in unnamed.stderr
    wrong = run(*servers, "--model", "no such folder", "--tokens", "8")
    assert wrong.returncode == 1 and wrong.stderr.startswith("specdec: The server plain ")
