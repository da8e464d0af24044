// A lane at another draft length, from what the server says of the shown race; and where a replay is at a moment.
import assert from "node:assert/strict";
import { test } from "node:test";
import { laneAt } from "../../specdec/ui/assets/race/gamma.js";
import { Lane, kindsOf, momentOf } from "../../specdec/ui/assets/race/race.js";

// Ten tokens. Guesses at places 3 and 6 do not stand.
const HITS = [0, 2, 1, 0, 2, 1, 0, 3, 2, 1];
const COSTS = Array.from({ length: 17 }, (_, n) => [0.01 * n, 0.1 + 0.01 * n, 0.001]);

function recorded(most = 10, draft = null) {
  const params = { max_new_tokens: most, temperature: 0 };
  const lane = new Lane("speculative", { prompt_ids: [1], gamma: 5, params, pair: { draft } });
  for (let id = 0; id < 10; id++)
    lane.add({
      index: id,
      draft: [],
      committed_ids: [100 + id],
      token_id: 100 + id,
      token_kind: "target",
      elapsed_seconds: 1 + id,
    });
  const wrong = Array(10).fill(null);
  wrong[3] = 55;
  return [{ verdict: { whatif: { hits: HITS, wrong, costs: COSTS } } }, lane];
}

test("the rounds of another length end where its guesses miss", () => {
  const [race, lane] = recorded();
  const found = laneAt(race, lane, 3);
  assert.deepEqual(
    found.rounds.map((round) => round.committed_ids.length),
    [1, 3, 3, 3],
  );
  assert.deepEqual(
    found.rounds.map((round) => kindsOf(round)),
    [
      ["target"],
      ["accepted", "accepted", "correction"],
      ["accepted", "accepted", "correction"],
      ["accepted", "accepted", "bonus"],
    ],
  );
  assert.deepEqual(found.rounds[1].draft.at(-1).token_id, 55, "the guess that was wrong, where it is known");
  assert.equal(found.rounds[2].draft.length, 2, "and nothing where it is not");
  assert.equal(found.tokens, 10);
});

test("its times are those of the passes, one round after the other", () => {
  const [race, lane] = recorded();
  const found = laneAt(race, lane, 3);
  const seconds = (n) => COSTS[n].reduce((sum, part) => sum + part, 0);
  // The last round has room for two guesses only.
  assert.ok(Math.abs(found.duration - (2 * seconds(3) + seconds(2))) < 1e-9);
});

test("a draft is no longer than a block, but for one that may be copied", () => {
  const block = { kind: "dflash", text: "dflash:a", most_guesses: 1 };
  const roundsOf = (draft) => laneAt(...recorded(10, draft), 6).rounds.map((round) => round.committed_ids.length);
  assert.deepEqual(roundsOf(block), [1, 2, 1, 2, 1, 2, 1]);
  assert.deepEqual(roundsOf({ ...block, kind: "combined" }), [1, 3, 3, 3]);
});

test("length 0 is one token a round", () => {
  const [race, lane] = recorded();
  const found = laneAt(race, lane, 0);
  assert.equal(found.rounds.length, 10);
  assert.ok(found.rounds.slice(1).every((round) => kindsOf(round)[0] === "target" && !round.draft.length));
});

test("during a round its guesses come one by one, and then the target checks", () => {
  const [race, lane] = recorded();
  const found = laneAt(race, lane, 3);
  assert.deepEqual(momentOf(found, null), { rounds: 4, guesses: null });
  assert.deepEqual(momentOf(found, 0), { rounds: 1, guesses: 0 });
  assert.deepEqual(momentOf(found, 0.016), { rounds: 1, guesses: 1 }, "three known guesses in 0.03 s");
  assert.deepEqual(momentOf(found, 0.05), { rounds: 1, guesses: 3 });
  assert.equal(momentOf(found, found.seconds[1]).rounds, 2);
});
