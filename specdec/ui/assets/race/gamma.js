// The shown race at another draft length, computed by the server from that race. Greedy decoding writes the same text
// at every length, so the rounds are known exactly. Their times come from the measured passes.
import { Lane } from "./race.js";

// The speculative lane at `gamma`.
export function laneAt(race, lane, gamma) {
  const { hits, wrong, costs } = race.verdict.whatif;
  const ids = lane.rounds.flatMap((round) => round.committed_ids);
  const { params, pair } = lane.started;
  const longest = Math.min(gamma, longestDraft(pair.draft));
  const found = new Lane(lane.key, { ...lane.started, gamma });
  const first = lane.rounds[0];
  found.add(first);
  let elapsed = first.elapsed_seconds;
  for (let start = first.committed_ids.length, index = 1; start < ids.length; index++) {
    const n = Math.max(0, Math.min(longest, params.max_new_tokens - start - 1));
    const kept = Math.min(n, hits[start]);
    const committed = ids.slice(start, Math.min(start + kept + 1, ids.length));
    const added = committed.length > kept;
    const [draft_seconds, verify_seconds, rest] = costs[n];
    elapsed += draft_seconds + verify_seconds + rest;
    found.add({
      event: "round",
      index,
      draft: guessesOf(committed, kept, n, wrong?.[start + kept] ?? null),
      committed_ids: committed,
      token_id: added ? committed.at(-1) : null,
      token_kind: added ? (n === 0 ? "target" : kept === n ? "bonus" : "correction") : null,
      draft_seconds,
      verify_seconds,
      elapsed_seconds: elapsed,
      decision: null,
      target_margin: null,
    });
    start += committed.length;
  }
  found.finished = lane.finished;
  return found;
}

// The most guesses that a draft can have. A combination has no such bound, because a copied draft may be longer.
const longestDraft = (draft) => (draft && draft.kind !== "combined" ? (draft.most_guesses ?? Infinity) : Infinity);

// The draft of a computed round: the kept guesses and, if known, the rejected one. Later guesses are not known and
// left out.
function guessesOf(committed, kept, n, wrong) {
  const blank = { draft_prob: null, target_prob: null, accept_prob: null, draw: null, draft_confidence: null };
  const guesses = committed
    .slice(0, kept)
    .map((id) => ({ ...blank, token_id: id, status: "accepted", target_token_id: id }));
  if (kept < n && wrong !== null && committed.length > kept)
    guesses.push({ ...blank, token_id: wrong, status: "rejected", target_token_id: committed[kept] });
  return guesses;
}

// The lengths that the race was computed at; null if there are none.
export const whatIfOf = (race) => race?.verdict?.whatif ?? null;
