"""Use a running page from a program: start ``python app.py``, then ``python -m examples.client [ADDRESS]``.

Needs the extra page: ``pip install ".[page]"``.

``/decode`` streams a recording, one event a line. ``/race`` returns the verdict of a race with all its figures, and the
text and the figures of each lane. ``docs/guide.md`` lists the parameters of both.
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

    # A target with a chat template takes the prompt as a message: chat=True.
    settings = {"max_new_tokens": 48, "further_lanes": ["assisted"], "stop": ["\n\n"], "chat": False}
    answer = client.predict("Once upon a time", **settings, api_name="/race")
    print(f"/race: {answer['sentence']}")
    for row in answer["lanes"]["rows"]:
        print("  ", " | ".join(row))
    for lane, result in answer["results"].items():
        figures = result["metrics"]
        print(f"   {lane}: {figures['new_tokens']} tokens, the first after {figures['prefill_seconds']:.3f} s")
        print(f"      {result['text']!r}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
