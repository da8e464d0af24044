// A lane's rounds as columns of small numbers, and back. Ids become numbers in order of first use.
const TENTH = 1e4; // times are kept in tenths of a millisecond, as the page shows them
const KINDS = [null, "target", "correction", "bonus"];
const REASONS = ["eos", "length", "stop", "deadline"];

// Numbers for ids: 0 is a new id, 1 the latest of the others.
export class Numbering {
  ids = [];

  code(id) {
    const at = this.ids.indexOf(id);
    if (at < 0) this.ids.push(id);
    return at < 0 ? 0 : this.ids.length - at;
  }

  id(code) {
    if (code > this.ids.length) throw new RangeError("no such token");
    if (code) return this.ids[this.ids.length - code];
    this.ids.push(this.ids.length);
    return this.ids.length - 1;
  }
}

// A guess without an id, as a server tells it, is marked in a column of its own, which only a lane with such guesses has.
export const hasUntold = ({ rounds }) =>
  rounds.some((round) => draftOf(round).some(({ token_id }) => token_id === null));

export function packLane(lane, earlier, bits, numbering) {
  const { rounds, finished } = lane;
  const of = (status) => rounds.map((round) => draftOf(round).filter((token) => token.status === status));
  const missed = rounds.flatMap((round) => draftOf(round).filter((token) => token.status !== "accepted"));
  const same = earlier.findIndex((other) => String(writtenBy(other)) === String(writtenBy(lane)));
  bits.number(same + 1); // lanes that decode greedily write the same text
  if (same < 0) bits.column(writtenBy(lane).map((id) => numbering.code(id)));
  bits.column(rounds.map((round) => KINDS.indexOf(round.token_kind)));
  bits.column(rounds.map((round) => round.committed_ids.length - (round.token_kind ? 1 : 0)));
  bits.column(rounds.map((round) => Number(round.draft === null)));
  bits.column(of("rejected").map((tokens) => tokens.length));
  bits.column(of("discarded").map((tokens) => tokens.length));
  if (hasUntold(lane)) bits.column(missed.map((token) => Number(token.token_id === null)));
  const told = missed.filter((token) => token.token_id !== null);
  bits.column(told.map((token) => numbering.code(token.token_id)));
  bits.number(
    Number(rounds.every((round) => draftOf(round).every((token) => token.target_token_id === choiceOf(round, token)))),
  );
  const draft = packTimes(rounds, "draft_seconds", bits);
  const verify = packTimes(rounds, "verify_seconds", bits);
  const ends = rounds.map((round) => tenths(round.elapsed_seconds));
  bits.column(ends.map((end, at) => end - (ends[at - 1] ?? 0) - draft[at] - verify[at]));
  bits.number(finished ? REASONS.indexOf(finished.finish_reason) + 1 : 0);
  if (finished) bits.column([tenths(finished.prefill_seconds), tenths(finished.elapsed_seconds)]);
}

// Its rounds and, if there was one, its end. `earlier` are the rounds of the lanes before it; `untold` says whether some
// of its guesses have no id.
export function unpackLane(earlier, bits, numbering, untold = false) {
  const same = bits.number();
  const written = same ? earlier[same - 1].flatMap((round) => round.committed_ids) : ids(bits, numbering);
  const [kinds, kept, blind, rejected, discarded] = Array.from({ length: 5 }, () => bits.column());
  const unknown = untold ? bits.column() : null;
  const told = ids(bits, numbering);
  const missed = unknown ? unknown.map((none) => (none ? null : told.shift())) : told;
  const choices = bits.number();
  const draft = unpackTimes(bits);
  const verify = unpackTimes(bits);
  const rests = bits.column();
  if ([kept, blind, rejected, discarded, draft, verify, rests].some(({ length }) => length !== kinds.length))
    throw new RangeError("columns of different lengths");
  let elapsed = 0;
  const rounds = rests.map((rest, index) => {
    elapsed += rest + (draft[index] ?? 0) + (verify[index] ?? 0);
    const added = KINDS[kinds[index]];
    const committed_ids = written.splice(0, kept[index] + (added ? 1 : 0));
    const guesses = (ids, status) => ids.map((token_id) => ({ ...UNKNOWN, token_id, status }));
    const round = {
      event: "round",
      index,
      draft: blind[index]
        ? null
        : [
            ...guesses(committed_ids.slice(0, kept[index]), "accepted"),
            ...guesses(missed.splice(0, rejected[index]), "rejected"),
            ...guesses(missed.splice(0, discarded[index]), "discarded"),
          ],
      token_id: added ? committed_ids.at(-1) : null,
      token_kind: added,
      committed_ids,
      draft_seconds: seconds(draft[index]),
      verify_seconds: seconds(verify[index]),
      elapsed_seconds: elapsed / TENTH,
      model_seconds: null,
      target_margin: null,
      decision: null,
      missed: [],
    };
    if (choices) for (const token of draftOf(round)) token.target_token_id = choiceOf(round, token);
    return round;
  });
  const reason = bits.number();
  if (!reason) return { rounds, finished: null };
  const [prefill, whole] = bits.column();
  const times = { prefill_seconds: prefill / TENTH, elapsed_seconds: whole / TENTH };
  return { rounds, finished: { event: "finished", finish_reason: REASONS[reason - 1], ...times } };
}

const UNKNOWN = {
  draft_prob: null,
  target_prob: null,
  accept_prob: null,
  draw: null,
  target_token_id: null,
  draft_confidence: null,
};

// The target's own choice at a guess's place in greedy decoding. It follows from the guess's status.
const choiceOf = (round, { status, token_id }) => ({ accepted: token_id, rejected: round.token_id })[status] ?? null;

const draftOf = (round) => round.draft ?? [];
const writtenBy = (lane) => lane.rounds.flatMap((round) => round.committed_ids);
const ids = (bits, numbering) => bits.column().map((code) => numbering.id(code));
const tenths = (value) => Math.round(value * TENTH);
const seconds = (value) => (value === null ? null : value / TENTH);

// The times of the rounds; 0 if there is none.
function packTimes(rounds, name, bits) {
  const times = rounds.map((round) => round[name]);
  bits.column(times.map((time) => Number(time === null)));
  bits.column(times.filter((time) => time !== null).map(tenths));
  return times.map((time) => (time === null ? 0 : tenths(time)));
}

function unpackTimes(bits) {
  const missing = bits.column();
  const known = bits.column();
  return missing.map((none) => (none ? null : known.shift()));
}
