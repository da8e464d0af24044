"""The race of servers in the terminal."""

from __future__ import annotations

import pytest
from programs import specdec_command
from server_standins import StandIn


@pytest.mark.parametrize(("option", "between"), [([], ""), (["--chat"], "\n\n")])
def test_an_answer_stands_apart_from_a_message_and_goes_on_from_a_text(option, between) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        words = [f"plain={plain.url}", f"other={other.url}", *option, "Once upon", "--tokens", "8", "--runs", "1"]
        ended = specdec_command("servers", *words)
    assert ended.returncode == 0, ended.stderr
    assert f"Once upon{between}, a robot" in ended.stdout
