"""Records what real servers say: ``python -m tests.servers.record plain=URL draft=URL ngram=URL``, or one of them.

Each name is that of a file in ``recorded/``. Started as vLLM 0.32, with the embedded target and a draft length of five:

    vllm serve specdec/embedded/target --served-model-name m --dtype float32 --max-model-len 1024
    ... --per-request-spec-decode-metrics detailed --speculative-config \
        '{"method": "draft_model", "model": "specdec/embedded/draft", "num_speculative_tokens": 5}'
    ... --per-request-spec-decode-metrics detailed --speculative-config \
        '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1}'
"""

from __future__ import annotations

import sys

from specdec.servers.lane import connect, server_lane
from specdec.servers.tokens import ServerTokens
from tests.servers.cases import CASES, SAMPLED
from tests.servers.exchanges import Exchange, write, written_down


def main() -> None:
    for word in sys.argv[1:]:
        name, url = word.split("=", 1)
        exchanges: list[Exchange] = []
        with written_down(url, exchanges) as there:
            server = connect(name, there)
            with server.client:
                for asked in [*CASES.values(), *([] if server.speculation else [SAMPLED])]:
                    list(server_lane(server, asked, ServerTokens(), name))
        write(
            f"vllm_{name}", f"recorded from {server.engine.name} {server.version} by tests/servers/record.py", exchanges
        )
        print(f"{name}: {len(exchanges)} exchanges")


if __name__ == "__main__":
    main()
