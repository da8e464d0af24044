"""Use a running page from a program: start ``python app.py``, then ``python -m examples.client [ADDRESS]``.

Needs the extra page: ``pip install ".[page]"``.

``/decode`` streams a recording, one event a line. ``/race`` returns the verdict of a race with all its figures.
``client.view_api()`` lists the parameters of both.
"""

from __future__ import annotations

import sys

from gradio_client import Client

from specdec import collect
from specdec.report import recording


def main(address: str = "http://127.0.0.1:7860") -> None:
    client = Client(address, verbose=False)
    job = client.submit("Once upon a time", gamma=4, max_new_tokens=48, api_name="/decode")
    job.result()  # waits for the end, and raises what the page refuses
    lines = [line for part in job.outputs() for line in part.splitlines()]
    metrics = collect(recording.read_recording(lines)).metrics
    print(f"/decode: {metrics.new_tokens} tokens, {metrics.alpha:.0%} of tested guesses kept")

    verdict = client.predict("Once upon a time", max_new_tokens=48, further_lanes=["assisted"], api_name="/race")
    print(f"/race: {verdict['sentence']}")
    for row in verdict["lanes"]["rows"]:
        print("  ", " | ".join(row))


if __name__ == "__main__":
    main(*sys.argv[1:2])
