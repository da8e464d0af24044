"""Whether a race on servers finds a difference of speed that is known, and finds none where there is none.

``python -m benchmarks.planted_difference [--races 20] [--percent 10] [--here]``

Two local servers send a text token by token, each token after a wait that varies. The second one is faster or slower
by so many percent, or as fast. They keep their pace as servers on machines of their own do; with ``--here`` what else
this machine does slows them. Each race runs as ``specdec servers`` does, until its verdict is clear. Printed is how
many races gave which verdict, and in how many its sign was right.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specdec.events import SamplingParams
from specdec.report.judge import Kind
from specdec.report.race_verdict import race_verdict
from specdec.report.verdict import Verdict, another_run
from specdec.servers.answer import Asked
from specdec.servers.lane import Server, connect
from specdec.servers.race import against, race_on_servers
from specdec.servers.tokens import ServerTokens

TOKENS = 64
WAIT = 0.01  # seconds a token, on average
SPREAD = 0.3  # a wait is longer or shorter by up to this share
UNCLEAR = {Kind.UNCLEAR, Kind.UNCLEAR_UNSPLIT, Kind.UNCLEAR_GAINS, Kind.UNCLEAR_LOSES}
FASTER = {Kind.FASTER, Kind.FASTER_UNSPLIT, Kind.FASTER_PERHAPS, Kind.FASTER_BY_ENGINE}
SLOWER = {Kind.SLOWER, Kind.SLOWER_UNSPLIT, Kind.SLOWER_PERHAPS, Kind.SLOWER_BY_ENGINE}


@contextmanager
def pacing(wait: float, seed: int, here: bool) -> Iterator[str]:
    """The address of a server that sends a token after about ``wait`` seconds; more with ``here`` on a busy machine."""
    waits = random.Random(seed)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._head("application/json")
            found = {"data": [{"id": "paced"}]} if self.path == "/v1/models" else {}
            self.wfile.write(json.dumps(found).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._head("text/event-stream")
            due = time.perf_counter()
            for number in range(asked["max_tokens"]):
                due = (time.perf_counter() if here else due) + wait * (1 + waits.uniform(-SPREAD, SPREAD))
                time.sleep(max(0.0, due - time.perf_counter()))
                end = "length" if number == asked["max_tokens"] - 1 else None
                choice = {"index": 0, "text": f" {number}", "finish_reason": end}
                self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())

        def _head(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def race(servers: list[Server]) -> Verdict:
    """The verdict of a race, after as many runs as the command makes."""
    asked, tokens = Asked("count", SamplingParams(max_new_tokens=TOKENS)), ServerTokens()
    runs: list[dict] = []
    began = time.perf_counter()
    while True:
        runs.append(dict(race_on_servers(servers, asked, tokens, len(runs))))
        verdict = race_verdict([against("plain", "other", run) for run in runs])
        if not another_run(verdict, time.perf_counter() - began):
            return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=20)
    parser.add_argument("--percent", type=float, default=10.0)
    parser.add_argument("--here", action="store_true")
    arguments = parser.parse_args()
    for sign, expected in ((1, FASTER), (-1, SLOWER), (0, UNCLEAR)):
        speedup = 1 + sign * arguments.percent / 100
        kinds: Counter[str] = Counter()
        right = 0
        gains = []
        for number in range(arguments.races):
            with ExitStack() as stack:
                servers = []
                for name, wait in (("plain", WAIT), ("other", WAIT / speedup)):
                    url = stack.enter_context(pacing(wait, number, arguments.here))
                    servers.append(connect(name, url))
                    stack.enter_context(servers[-1].client)
                verdict = race(servers)
            kinds[verdict.kind] += 1
            right += verdict.kind in expected
            gains.append(verdict.gain or float("nan"))
        found = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        gains.sort()
        print(
            f"other server {speedup:.2f}x as fast: right in {right} of {arguments.races} races ({found}); "
            f"measured gain {gains[0]:.3f} to {gains[-1]:.3f}, median {gains[len(gains) // 2]:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
