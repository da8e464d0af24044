"""Speculative decoding: the only loop over rounds, in the order of Algorithm 1 (Leviathan et al. 2211.17192)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specdec.drafters.base import Drafter, NoDraft, Proposal, nothing
from specdec.drafters.forced import ForcedFirst
from specdec.engine.acceptance import Acceptance, Lossless, acceptance_of
from specdec.engine.observe import RoundValues, TargetStep, draft_tokens, observe_round
from specdec.engine.policy import Policy, lengths_of, next_draft, tell_of_costs, tell_of_drafts
from specdec.engine.request import LaneCall, Request, make_call, make_request
from specdec.engine.round_costs import known_costs
from specdec.engine.round_times import REREAD
from specdec.events import Event, Finished, FinishReason, Round, SamplingParams, TokenKind, longest_draft
from specdec.forward.engine import Engine
from specdec.forward.runner import Runner
from specdec.models.pair import Pair, Prompt
from specdec.runtime.clock import CallClock, Mark, between, mark
from specdec.runtime.sampling import Sampler


def speculative(
    pair: Pair,
    prompt: Prompt,
    *,
    gamma: int | str | Policy = 5,
    params: SamplingParams = SamplingParams(),
    acceptance: str = "lossless",
    accept_top_k: int | None = None,
) -> Iterator[Event]:
    """Decode ``prompt`` speculatively: yield ``Started``, a ``Round`` for each target pass, and ``Finished``.

    ``prompt`` is a str, a list of chat messages, or a LongTensor (n,) or (1, n). ``gamma`` is how many tokens the draft
    proposes a round, from 0 to 16; 0 is plain decoding by the same loop. "auto" chooses the number in each round
    by costs estimated from the sizes of the models. In greedy calls times measured in this call and in the pair's
    earlier ones correct them; in sampled ones they do not, so that a seed repeats the text. A policy such as
    ``ConfidenceStop`` chooses it by rules of its own.

    ``acceptance`` "lossless" keeps the target's distribution; greedy text is the target's own. "block" is lossless too:
    it judges a sampled draft as a whole and keeps more of it (Sun et al. 2403.10444). "top-k" is not lossless: it keeps
    a draft token that is among the target's ``accept_top_k`` (1 or more) most likely tokens. Installed packages may
    offer other rules by name.

    Seconds in the events do not count the time in which the consumer holds an event. Arguments are checked at once:
    ``InvalidInput`` says what was found. While it runs, ``NotNumbers`` is raised for logits with NaN or infinity, and
    ``IncompatiblePair`` for a model whose cache cannot be used. Closing the generator ends the work and leaves no state
    behind.
    Source: Leviathan et al. 2211.17192, Algorithm 1; Chen et al. 2302.01318.
    """
    return decode(make_request(pair, prompt, params), gamma, acceptance_of(acceptance, accept_top_k))


def decode(request: Request, gamma: int | str | Policy, acceptance: Acceptance = Lossless()) -> Iterator[Event]:
    """``speculative`` for a prompt that was encoded and checked before, as in a race."""
    return _rounds(make_call("speculative", request, gamma, acceptance))


def _rounds(call: LaneCall) -> Iterator[Event]:
    yield call.started
    policy, inference = lengths_of(call.policy), torch.inference_mode()
    tell_of_costs(policy, lambda: known_costs(call.pair, call.params.greedy))
    clock = CallClock()
    with call.new_engine() as engine:
        # The engine may use the run's buffers again in other calls. In this mode they are made as inference tensors,
        # whatever the mode of this call's reader is.
        with inference:
            run = _Run(call, engine, clock)
            event = run.prefill()
        may_stop = call.params.greedy and run.drafter.watches and not run.context.blocks_host
        tell_of_drafts(policy, may_stop, longest_draft(call.started.pair))
        prefill_seconds = event.elapsed_seconds
        while True:
            policy.saw(event)
            clock.pause()
            yield event
            clock.resume()
            if run.reason is not None:
                break
            with inference:
                # 1. The draft proposes gamma tokens, but never the last one of the text: each round ends with a token
                #    of the target's own, so a draft token in that place would save no pass.
                gamma, stop = next_draft(policy)
                gamma = min(gamma, call.params.max_new_tokens - len(run.new_ids) - 1)
                began = mark(run.device)
                proposal = run.drafter.propose(run.context, gamma, stop)
                event = run.verify_and_commit(proposal, began)
    yield Finished(run.reason, prefill_seconds, clock.elapsed(), clock.cpu(run.device))


class _Run:
    """The state of one call: its clock, its models, the tokens so far, and why it ended."""

    def __init__(self, call: LaneCall, engine: Engine, clock: CallClock):
        pair, params = call.pair, call.params
        self.call, self.engine, self.clock, self.device = call, engine, clock, pair.device
        self.context = engine.context(call.prompt_ids, params.max_new_tokens)
        rng, masks = engine.rng(params.seed or 0), call.masks()
        self.sampler = Sampler(params, rng, masks)
        self.target = Runner(pair.target, engine)
        if pair.draft is None or call.gamma == 0:
            self.drafter: Drafter = NoDraft(pair.vocabulary, self.context)
        else:
            drafting = self.sampler if params.draft_mask else Sampler(params, rng)
            self.drafter = pair.draft.start(self.target, pair.vocabulary, drafting, self.context)
            if masks is not None and params.draft_mask:
                self.drafter = ForcedFirst(masks, self.drafter, engine, pair.vocabulary, self.sampler, self.context)
        self.new_ids: list[int] = []
        self.index = -1
        self.reason: FinishReason | None = None

    def prefill(self) -> Round:
        """Let both models read the prompt, and commit the target's first token as round 0."""
        began = mark(self.device)
        self.drafter.prefill(self.context)
        event = self.verify_and_commit(nothing(self.call.pair.vocabulary, self.device), began)
        self.target.require_cache()
        self.drafter.require_cache()
        return event

    def verify_and_commit(self, proposal: Proposal, began: Mark) -> Round:
        """Let the target judge a proposal; commit what it accepts, and one token of the target's own."""
        sampler, context, target, drafter = self.sampler, self.context, self.target, self.drafter
        gamma = len(proposal.ids)
        if sampler.masks is not None:
            sampler.masks.require_choice(context.tokens)
        drafted = mark(self.device)
        # 2. One target pass over the last committed token (which is not cached yet) and the gamma draft tokens. The row
        #    of a token tells what follows it. So gamma rows judge the draft tokens, each by the row of the token before
        #    it, and the row of the last draft token gives the bonus if all are accepted: gamma + 1 rows.
        length = context.length + gamma

        # A model with recurrent state reads again what was kept since the start of an earlier pass.
        reread = context.length - 1 - len(target) if len(target) else 0
        target.catch_up(context, REREAD)

        def decide() -> TargetStep:
            logits = target.forward(context.ids(len(target), length), keep=gamma + 1, committed=not gamma)
            # 3. Accept a prefix of the draft; add the correction or the bonus token.
            processed = sampler.process(logits, context, length)
            choices = processed.argmax(-1)
            p = None if sampler.greedy else sampler.probabilities(processed)
            outcome = self.call.acceptance.judge(proposal, processed, choices, p, sampler)
            return TargetStep(outcome, logits, choices, p)

        decided = target.verify(proposal, decide, length)
        verified = mark(self.device)
        seen = observe_round(self.engine, proposal, decided, context.blocks_host)
        drafter.note_choices([context.tokens[-1], *seen.draft_ids], seen.choices[: 1 + len(seen.draft_ids)])
        # 4. Commit the block, cut at EOS, a stop string or the length. Cut both caches back to all but its last token,
        #    which no model has read. After a full acceptance the draft has not read its own last token either.
        block = [*seen.draft_ids[: seen.accepted], seen.token_id]
        kept, self.reason = self.call.cut(self.new_ids, block)
        self.new_ids += block[:kept]
        context.commit(block[:kept])
        if sampler.masks is not None:
            sampler.masks.require_obeyed(context.tokens)
        target.crop_to(context.length - 1)
        drafter.crop_to(context.length - 1)
        # 5. Report the round.
        return self._event(seen, block, kept, reread, (began, drafted, verified), proposal.drafted_by)

    def _event(
        self,
        seen: RoundValues,
        block: list[int],
        kept: int,
        reread: int,
        marks: tuple[Mark, Mark, Mark],
        drafted_by: str | None,
    ) -> Round:
        """The event of a round that committed the first ``kept`` tokens of ``block``."""
        elapsed, copying, restoring = self.clock.elapsed(), *self.target.take_copy_seconds()
        began, drafted, verified = marks
        whole = kept == len(block)
        self.index += 1
        return Round(
            index=self.index,
            draft=draft_tokens(seen, kept, one_by_one=self.call.acceptance == Lossless()),
            token_id=seen.token_id if whole else None,
            token_kind=_kind(seen.accepted, len(seen.draft_ids)) if whole else None,
            committed_ids=tuple(block[:kept]),
            draft_seconds=between(began, drafted),
            verify_seconds=between(drafted, verified) - copying,
            elapsed_seconds=elapsed,
            model_seconds=self.target.take_seconds() + self.drafter.take_seconds(),
            target_margin=seen.margin if whole else None,
            decision=seen.decision if whole else None,
            missed=seen.missed,
            reread=reread,
            state_seconds=copying + restoring,
            drafted_by=drafted_by,
        )


def _kind(accepted: int, gamma: int) -> TokenKind:
    if gamma == 0:
        return "target"
    return "bonus" if accepted == gamma else "correction"
