"""The verdict on races whose events are made by hand, so that every figure is known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from accelerate import dispatch_model
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny
from judged import texts

import specdec
from specdec.closed_forms import break_even_alpha, expected_tokens
from specdec.events import DraftToken, Finished, Round, SamplingParams, Started
from specdec.lanes.table import LOOP
from specdec.measure.float32_check import float32_check
from specdec.report import schema
from specdec.report.definitions import DEFINITIONS, label_of
from specdec.report.judge import Doubt
from specdec.report.losslessness import float32_note
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import verdict_line
from specdec.report.verdict import Verdict

TEXT = list(range(10, 31))  # 21 tokens: the first, and 20 after it


def started(lane: str, **settings) -> Started:
    fields = {"gamma": 4, "acceptance": "lossless", "accept_top_k": None, "params": SamplingParams(max_new_tokens=21)}
    model = {"layers": 2, "dtype": "float32", "bits": None}
    pair = {"name": "embedded", "device": "cpu", "compiled": False}
    pair |= {"target": {"name": "t", **model}, "draft": {"kind": "model", "name": "d", **model}}
    return Started(
        lane=lane, prompt_ids=(1,), pair=pair, machine={"cpu": "x"}, versions={}, neutralised={}, **fields | settings
    )


def plain(step: float = 1.0, text: list[int] = TEXT, **settings) -> list:
    rounds = [Round(i, (), t, "target", (t,), 0.0, None, 1 + i * step) for i, t in enumerate(text)]
    return [started("generate", **settings), *rounds, Finished("length", 1.0, 1 + step * len(text))]


def loop(step: float) -> list:
    """Our loop without a draft, which takes 9/10 of its time for passes."""
    lane = plain(step)
    return [started("speculative", gamma=0), *(timed(event, 0.9 * step) for event in lane[1:-1]), lane[-1]]


def timed(event: Round, seconds: float) -> Round:
    return replace(event, verify_seconds=seconds, model_seconds=seconds)


def speculative(step: float = 2.0, kept: int = 3, draft: float = 0.1, text: list[int] = TEXT, **settings) -> list:
    """Rounds of ``step`` seconds that keep ``kept`` of 4 guesses and add a correction, until the text is written."""
    rounds = [Round(0, (), text[0], "target", (text[0],), 0.0, 1.0, 1.0)]
    at = 1
    while at < len(text):
        block = text[at : at + kept + 1]
        tokens = [DraftToken(t, "accepted", 1.0, 1.0, 1.0, None, t, 0.9) for t in block[:-1]]
        tokens.append(DraftToken(99, "rejected", 1.0, 0.0, 0.0, None, block[-1], 0.9))
        tokens += [DraftToken(98, "discarded", 1.0, None, None, None, None, 0.9)] * (4 - len(tokens))
        index = len(rounds)
        rounds.append(
            Round(
                index,
                tuple(tokens),
                block[-1],
                "correction",
                tuple(block),
                4 * draft,
                1.0,
                1 + index * step,
                0.9 * step,
            )
        )
        at += len(block)
    return [started("speculative", **settings), *rounds, Finished("length", 1.0, rounds[-1].elapsed_seconds)]


def labelled(figures: list[dict]) -> dict[str, str]:
    return {label_of(figure): figure["value"] for figure in figures}


def test_one_run_that_pays() -> None:
    """20 tokens in 20 s against 5 rounds of 2 s: 2 times as fast, in one run."""
    said = race_verdict([{"generate": plain(), "speculative": speculative()}])
    assert (said.kind, said.factor, said.faster) == ("faster_unsplit", "2.0x", True)
    assert "2.0 times as fast" in said.sentence and "1 run" in said.sentence
    assert said.saved == "10.0\u00a0s saved" and said.same and said.runs == 1
    assert labelled(said.figures) == {"tested guesses kept": "75\u00a0%", "tokens identical": "21 of 21"}
    assert all(figure["name"] in DEFINITIONS for figure in said.figures)
    assert said.rates == {"generate": "1.0\u00a0tokens/s", "speculative": "2.0\u00a0tokens/s"}
    known = labelled(said.details)
    assert known["tokens/s, plain \u2192 speculative"] == "1.0 \u2192 2.0" and known["tokens per target pass"] == "4.0"
    assert said.time == "Of these 10.0\u00a0s: drafting 20\u00a0%, checking 50\u00a0%, other work 30\u00a0%."


def test_our_loop_beside_them_adds_both_shares() -> None:
    """Plain takes 1 s a token, our loop 0.5 s and speculation 0.4 s, so the shares are 2x and 1.25x."""
    run = {"generate": plain(), "speculative": speculative(1.6), LOOP.key: loop(0.5)}
    said = race_verdict([run])
    assert [(figure["value"], label_of(figure)) for figure in said.figures] == [
        ("2.00x", "our loop vs generate()"),
        ("1.25x", "speculation on top"),
        ("75\u00a0%", "tested guesses kept"),
        ("21 of 21", "tokens identical"),
    ]
    assert said.rates == {
        "generate": "1.0\u00a0tokens/s", "speculative": "2.5\u00a0tokens/s", LOOP.key: "2.0\u00a0tokens/s",
    }  # fmt: skip


def test_details_have_v_by_rows_where_our_loop_ran() -> None:
    run = {"generate": plain(), "speculative": speculative(1.6), LOOP.key: loop(0.5)}
    rows = {row[0]: float(row[3]) for row in race_verdict([run]).checks["rows"]}
    assert rows.keys() == {"1 row", "5 rows"} and rows["1 row"] == 1
    assert schema.parse(verdict_line(race_verdict([run])), 1).checks == race_verdict([run]).checks
    assert race_verdict([{"generate": plain(), "speculative": speculative(1.6)}]).checks is None


def test_rates_are_medians_over_the_runs() -> None:
    runs = [{"generate": plain(), "speculative": speculative(step)} for step in (2.5, 1.0, 2.0)]
    assert race_verdict(runs).rates["speculative"] == "2.0\u00a0tokens/s"


def test_a_finished_greedy_race_tells_of_other_lengths() -> None:
    """Other lengths use the costs of all runs and our loop, and the rounds of the shown run.

    Gains are over plain generate.
    """
    runs = [{"generate": plain(), "speculative": speculative(step), LOOP.key: loop(0.5)} for step in (1.45, 1.45, 3.0)]
    found = race_verdict(runs).whatif
    assert schema.parse(verdict_line(race_verdict(runs)), 1).whatif == found
    assert found["hits"][1:5] == [3, 2, 1, 0] and found["wrong"][1:5] == [None, None, None, 99]
    assert [length.gamma for length in found["lengths"]] == list(range(17)) == list(range(len(found["costs"])))
    assert found["lengths"][0].ms_per_token == pytest.approx(500) and found["lengths"][0].gain == 2.0
    recorded = found["lengths"][4]
    assert (recorded.passes, recorded.tokens_per_pass) == (5, 4.0)
    assert recorded.ms_per_token == pytest.approx(5 * 1450 / 20, rel=0.04)
    assert "extrapolated" in texts(found["notes"])[-1]


def test_a_race_that_cannot_tell_of_other_lengths_says_why() -> None:
    warm = {"params": SamplingParams(max_new_tokens=21, temperature=1.0, seed=4)}
    for lane, said in (
        (speculative(acceptance="top-k", accept_top_k=3), "would write another text"),
        (speculative(acceptance="cautious", claims_lossless=True), "at other draft lengths is not known"),
        (speculative(**warm), "was sampled"),
        (speculative(text=TEXT[:5]), "known at 4 tokens"),
    ):
        record = race_verdict([{"generate": plain(), "speculative": lane}])
        assert said in record.whatif_refused and record.whatif is None
    stopped = race_verdict([{"generate": plain(), "speculative": speculative()[:-1]}], "Stopped")
    assert "was stopped" in stopped.whatif_refused and stopped.whatif is None


def test_several_runs_give_a_median_with_its_spread() -> None:
    """With speed-ups 1.25, 2 and 4 the run of the 2 is shown, and the lane's row has all three."""
    runs = [{"generate": plain(), "speculative": speculative(step)} for step in (2.5, 1.0, 2.0)]
    said = race_verdict(runs)
    assert "median of 3 runs, 1.6\u20134.0x" in said.sentence
    assert (said.shown, said.runs, said.factor) == (2, 3, "2.0x")
    row = next(row for row in said.lanes["rows"] if row[0] == "Speculative")
    assert row[2] == "2.00x (1.60x\u20134.00x)"


def test_a_spread_around_one_is_no_difference() -> None:
    runs = [{"generate": plain(), "speculative": speculative(step)} for step in (3.5, 4.5, 3.9)]
    said = race_verdict(runs)
    assert (said.kind, said.factor, said.faster) == ("unclear_unsplit", None, False)
    runs = [{"generate": plain(), "speculative": speculative(step)} for step in (3.9, 3.95, 3.8)]
    said = race_verdict(runs)
    assert (said.kind, said.doubts) == ("unclear_unsplit", (Doubt.FEW_RUNS,))
    assert "In 3 runs, such a difference can be chance: more runs are needed to confirm it." in texts(said.notes)


def test_a_guess_dearer_than_a_token_cannot_pay() -> None:
    """If a guess takes as long as 1.2 tokens of plain generate, no acceptance makes it pay."""
    said = race_verdict([{"generate": plain(), "speculative": speculative(6.0, draft=1.2)}])
    assert (said.kind, said.reason, said.factor) == ("slower_unsplit", "guesses_cost", "0.67x")
    assert "can yield at most 5 tokens" in said.sentence and "needs" not in said.sentence


def test_too_few_guesses_kept_names_what_is_needed() -> None:
    """A round costs 2.5 plain tokens and writes 2. The closed form gives the acceptance that would write 2.5."""
    said = race_verdict([{"generate": plain(), "speculative": speculative(2.5, kept=1)}])
    needed = break_even_alpha(4, 2.5)
    assert expected_tokens(needed, 4) == pytest.approx(2.5)
    assert (said.kind, said.reason) == ("slower_unsplit", "few_kept")
    assert f"Only 50\u00a0% of guesses are kept; γ 4 needs {100 * needed:.0f}\u00a0%" in said.sentence
    assert break_even_alpha(4, 5.1) is None


def test_a_round_dearer_than_all_it_can_write() -> None:
    said = race_verdict([{"generate": plain(), "speculative": speculative(5.6)}])
    assert said.reason == "checking_or_loop"
    assert "a round takes as long as 5.6 tokens of plain generate but can yield at most 5 tokens" in said.sentence


def test_the_first_difference_names_both_tokens_and_the_margin() -> None:
    """The first difference names its position and both tokens. A draft that was right there has no margin."""
    other = [*TEXT[:8], 77, *TEXT[9:]]
    said = race_verdict(
        [{"generate": plain(), "speculative": speculative(text=other)}], text_of=lambda token: f"<{token}>"
    )
    assert "First difference at token 9: plain \u201c<18>\u201d, speculative \u201c<77>\u201d." in texts(said.notes)
    assert labelled(said.figures)["tokens identical"] == "8 of 21" and not said.same
    parting = [*TEXT[:4], 77, *TEXT[5:]]  # at a guess that the target corrected
    for penalty, words in ((1.0, "logit margin 0.002."), (1.5, "logit margin 0.002 (before the repetition penalty).")):
        params = SamplingParams(max_new_tokens=21, repetition_penalty=penalty)
        lane = speculative(text=parting, params=params)
        lane = [replace(e, target_margin=0.002) if isinstance(e, Round) else e for e in lane]
        (note,) = (
            n
            for n in texts(race_verdict([{"generate": plain(params=params), "speculative": lane}]).notes)
            if "First" in n
        )
        assert note.endswith(words)


def test_lossy_acceptance_is_a_warning_and_sampling_a_note() -> None:
    lossy = speculative(acceptance="top-k", accept_top_k=3)
    said = race_verdict([{"generate": plain(), "speculative": lossy}])
    assert said.warning == "Not lossless: top-k acceptance changes the output."
    assert str(said).splitlines()[1] == said.warning, "programs and terminals say it too"
    warm = {"params": SamplingParams(max_new_tokens=21, temperature=1.0, seed=4)}
    said = race_verdict([{"generate": plain(**warm), "speculative": speculative(**warm)}])
    assert said.warning is None
    assert texts(said.notes)[1:] == ["Sampling: the two texts may differ; their distribution is the same."]
    assert {"value": "4", "label": "Seed"} in said.details


def test_lossy_sampling_promises_nothing() -> None:
    warm = {"params": SamplingParams(max_new_tokens=21, temperature=1.0, seed=4)}
    said = race_verdict(
        [{"generate": plain(**warm), "speculative": speculative(acceptance="top-k", accept_top_k=3, **warm)}]
    )
    assert texts(said.notes)[1:] == ["With this acceptance, sampled text does not follow the target's distribution."]


def test_slower_with_enough_kept_does_not_contradict_itself() -> None:
    """Where drafts are shorter than gamma, the closed form does not apply. The text gives a round's cost and tokens."""
    short = [
        replace(event, draft=event.draft[:1]) if isinstance(event, Round) and event.index else event
        for event in speculative(4.4)
    ]
    said = race_verdict([{"generate": plain(), "speculative": short}])
    assert (said.reason, said.factor) == ("checking_or_loop", "0.91x")
    assert "each round yields 4.0 tokens for the time of 4.4 tokens of plain generate" in said.sentence


def test_the_row_of_a_lane_is_of_all_runs() -> None:
    """Acceptance 75 % and 50 % in two runs: the row gives that of the median run, the slower one, and both ends."""
    runs = [{"generate": plain(), "speculative": speculative(kept=kept)} for kept in (3, 1)]
    row = next(row for row in race_verdict(runs).lanes["rows"] if row[0] == "Speculative")
    assert row[4:6] == ["50\u00a0% (50\u00a0%\u201375\u00a0%)", "2.0 (2.0\u20134.0)"]


def _without_zeros(shown: object) -> str:
    """The shares of runs that differ widely have fewer digits: "2.0x" for "2.00x"."""
    return re.sub(r"(\.\d)0x", r"\1x", repr(shown))


def test_all_figures_of_a_race_are_of_one_run() -> None:
    """Plain, our loop and our speculative lane are slow in different runs. The median run is the second."""
    steps = [(0.9, 2.2, 0.9), (1.0, 1.6, 0.5), (2.0, 2.4, 1.0)]
    runs = [{"generate": plain(a), "speculative": speculative(b), LOOP.key: loop(c)} for a, b, c in steps]
    said, alone = race_verdict(runs), race_verdict(runs[1:2])
    assert said.shown == 1 and (said.factor, said.runs) == (alone.factor, 3) == ("2.5x", 3)
    for name in ("figures", "rates", "details", "saved", "why"):
        assert _without_zeros(getattr(said, name)) == _without_zeros(getattr(alone, name)), name


def test_a_run_without_a_speed_up_is_left_out_everywhere() -> None:
    """In one of three runs plain ends at its first token, so no figure uses that run."""
    runs = [{"generate": plain(), "speculative": speculative(kept=kept)} for kept in (3, 1, 3)]
    runs[1]["generate"] = plain(text=TEXT[:1])
    said, alone = race_verdict(runs), race_verdict([runs[0], runs[2]])
    assert said.runs == 2 and said.shown == 0
    assert labelled(said.figures)["tested guesses kept"] == "75\u00a0%"
    assert said.rates == alone.rates and said.figures == alone.figures
    assert said.lanes == alone.lanes and said.details == alone.details
    assert race_verdict([runs[1]]).kind == "too_few_tokens", "where no run has one, the figures are still shown"


def test_a_race_stopped_after_its_first_lane_says_what_was_written() -> None:
    said = race_verdict([{"generate": plain()}], "Stopped")
    assert said.kind == "incomplete" and said.stopped
    assert said.sentence == "Stopped at 21 of 21 tokens in the plain lane."
    both = race_verdict([{LOOP.key: loop(1.0), "generate": plain()[:5]}], "Stopped")
    assert both.kind == "incomplete" and "4 of 21 tokens in the plain lane" in both.sentence


def test_a_race_stopped_in_a_later_run_keeps_those_that_ended() -> None:
    whole = {"generate": plain(), "speculative": speculative()}
    said = race_verdict([whole, {"generate": plain(1.2)[:5]}], "Stopped")
    assert said.runs == 1 and said.factor == "2.0x"
    assert texts(said.notes)[0] == "Stopped before all lanes ended. Only lanes that ended count."


def test_a_stopped_race_compares_what_both_wrote() -> None:
    said = race_verdict([{"generate": plain(), "speculative": speculative()[:4]}], "Stopped")
    assert texts(said.notes)[0] == "Stopped at 9 of 21 tokens; only tokens that both lanes wrote are compared."
    assert said.factor == "2.0x" and said.end["lane"] == "speculative"


@pytest.mark.parametrize("run", [{"generate": plain()[:4]}, {"generate": plain(), "speculative": speculative()[:1]}])
def test_a_race_stopped_before_the_speculative_lane_has_tokens_is_incomplete(run: dict) -> None:
    """It says in which lane it stopped, and shows no figure."""
    said = race_verdict([run], "Stopped")
    assert (said.kind, said.factor, said.stopped) == ("incomplete", None, True)
    assert "of 21" in said.sentence and said.figures is None


def test_further_lanes_have_a_row_each() -> None:
    run = {"generate": plain(), "speculative": speculative(), "speculative:0": plain(0.8)}
    rows = race_verdict([run]).lanes["rows"]
    assert [row[0] for row in rows] == ["Plain", "Speculative", "Our loop, no draft"]
    assert [row[2] for row in rows] == ["1", "2.00x", "1.25x"]


def test_a_difference_in_half_precision_is_looked_at_in_float32() -> None:
    """With the target in bfloat16 the note says what float32 would choose where the texts differ."""
    target = shared_tiny("llama", 4, layers=3)
    half = noisy_copy(target, 4, scale=0.0).to(torch.bfloat16)
    pair = specdec.Pair(target=half, draft=noisy_copy(target, 5, scale=0.01), tokenizer=byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=8, ignore_eos=True)
    events = list(specdec.generate(pair, "Once upon", params=params))
    forged = [e if not isinstance(e, Round) or e.index != 5 else replace_id(e, 3) for e in events]
    run = {"generate": events, "speculative": forged}
    ids = torch.tensor([[*events[0].prompt_ids, *(e.committed_ids[0] for e in events[1:6])]])
    with torch.inference_mode():
        chosen = int(noisy_copy(half, 4, scale=0.0).to(torch.float32)(ids).logits[0, -1].argmax())
    note = noted(pair, run)
    assert f"In float32 the target chooses \u201c{chosen}\u201d there" in note and "logit margin" in note
    assert noted(pair, {"generate": events, "speculative": events}) is None
    assert half.dtype == torch.bfloat16
    dispatch_model(half, {"": "cpu"}, main_device="cpu", force_hooks=True)
    assert "spread or offloaded" in noted(pair, run)
    assert half.dtype == torch.bfloat16


def test_float32_chooses_after_the_repetition_penalty_as_the_lanes_do() -> None:
    """float32 chooses after the repetition penalty too, else it would name a token that no lane writes."""
    half = tiny("llama", 4, layers=3, context=512).to(torch.bfloat16)
    pair = specdec.Pair(target=half, draft=None, tokenizer=byte_tokenizer())
    prompt = torch.arange(2, 300)
    texts = {}
    for penalty in (1.0, 50.0):
        params = specdec.SamplingParams(max_new_tokens=1, ignore_eos=True, repetition_penalty=penalty)
        texts[penalty] = list(specdec.generate(pair, prompt, params=params))
    raw, penalised = (text[1].token_id for text in texts.values())
    assert raw != penalised
    forged = [replace_id(e, 3) if isinstance(e, Round) else e for e in texts[50.0]]
    note = noted(pair, {"generate": texts[50.0], "speculative": forged})
    assert f"chooses \u201c{penalised}\u201d there, as the plain lane did" in note


def noted(pair: specdec.Pair, run: dict) -> str | None:
    found = float32_check(pair, run)
    return float32_note(found) if found else None


def replace_id(event: Round, token_id: int) -> Round:
    return replace(event, committed_ids=(token_id,), token_id=token_id)


def note_of(said: Verdict, kind: str) -> str | None:
    return next((note.text for note in said.notes if note.kind == kind), None)


def test_the_texts_are_compared_as_far_as_both_went() -> None:
    both = race_verdict([{"generate": plain(), "speculative": speculative()}])
    assert note_of(both, "texts") == "Identical text: 21 of 21 tokens."
    stopped = race_verdict([{"generate": plain(), "speculative": speculative()[:4]}], "Stopped")
    assert note_of(stopped, "texts") == "Identical text so far: 9 of 9 tokens."
    least = race_verdict([{"generate": plain(), "speculative": speculative(kept=6)[:3]}], "Stopped")
    assert note_of(least, "stopped").startswith("Stopped at 8 of 21 tokens"), "the fewest that are compared"


@pytest.mark.parametrize(("penalty", "raw"), [(1.0, ""), (1.3, " (before the repetition penalty)")])
def test_the_first_difference_is_named_with_the_margin_of_that_token(penalty: float, raw: str) -> None:
    """The margin is known where the target added the token, and not inside of a draft."""
    settings = {"params": SamplingParams(max_new_tokens=21, repetition_penalty=penalty)}
    ours = speculative(**settings)
    ours = [replace(e, target_margin=0.25 * e.index) if isinstance(e, Round) else e for e in ours]
    for at, margin in ((12, f"; logit margin 0.75{raw}"), (10, ""), (20, f"; logit margin 1.25{raw}")):
        other = [*TEXT[:at], 77, *TEXT[at + 1 :]]
        said = race_verdict([{"generate": plain(text=other, **settings), "speculative": ours}])
        assert note_of(said, "texts") == (
            f"First difference at token {at + 1}: plain \u201c77\u201d, speculative \u201c{TEXT[at]}\u201d{margin}."
        )
    said = race_verdict([{"generate": plain(text=TEXT[:20], **settings), "speculative": ours}])
    assert "plain the end, speculative" in note_of(said, "texts")


def test_the_margin_of_a_round_of_one_token_is_known_too() -> None:
    """The round before it ends just where the texts part."""
    ours = [replace(e, target_margin=0.25 * e.index) if isinstance(e, Round) else e for e in speculative(kept=0)]
    other = [*TEXT[:12], 77, *TEXT[13:]]
    said = race_verdict([{"generate": plain(text=other), "speculative": ours}])
    assert note_of(said, "texts").endswith("speculative \u201c22\u201d; logit margin 3.")


def test_text_that_repeats_itself_is_said_to_be_easy() -> None:
    """From half of its 4-grams on, and only where something was accepted."""
    again = [10, 11, 12, 13] * 5 + [10]
    said = race_verdict([{"generate": plain(text=again), "speculative": speculative(text=again)}])
    assert note_of(said, "repetition").startswith("78\u00a0% of the text")
    alone = race_verdict([{"generate": plain(text=again), "speculative": speculative(kept=0, text=again)}])
    other = race_verdict([{"generate": plain(), "speculative": speculative()}])
    assert note_of(alone, "repetition") is note_of(other, "repetition") is None


def test_chosen_lengths_are_told_and_a_set_one_is_not() -> None:
    lane = speculative(gamma="auto")
    said = race_verdict([{"generate": plain(), "speculative": lane}])
    assert note_of(said, "lengths") == "Draft length γ auto: 4.0 guesses per round on average."
    lane[3] = replace(lane[3], draft=())
    said = race_verdict([{"generate": plain(), "speculative": lane}])
    assert note_of(said, "lengths") == (
        "Draft length γ auto: 3.2 guesses per round on average; 1 of 5 rounds had none."
    )
    assert note_of(race_verdict([{"generate": plain(), "speculative": speculative()}]), "lengths") is None
    blind = [replace(e, draft=None) if isinstance(e, Round) and e.index else e for e in lane]
    assert note_of(race_verdict([{"generate": plain(), "speculative": blind}]), "lengths") is None


def test_events_that_are_no_race_are_refused() -> None:
    lanes = [*plain(), *speculative()]
    with pytest.raises(specdec.InvalidInput, match="needs the lane speculative; the events are of generate"):
        specdec.verdict(plain())
    with pytest.raises(specdec.InvalidInput, match="needs the lane generate; there are no events of a whole lane"):
        specdec.verdict([])
    for other in ({"acceptance": "block"}, {"params": SamplingParams(max_new_tokens=20)}):
        with pytest.raises(specdec.InvalidInput, match="The lanes differ in prompt, settings, target or machine"):
            specdec.verdict([*lanes, *speculative(**other)])
    found = specdec.verdict(lanes)
    assert (found.kind, found.stopped) == ("faster_unsplit", False)
    assert specdec.verdict(lanes[:-1]).stopped
    assert specdec.verdict([*plain(), *loop(0.5), *speculative()]).engine == pytest.approx(2.0)
