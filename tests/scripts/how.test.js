// What the tab "How it works" takes from a race, and the rules of its game.
import assert from "node:assert/strict";
import { test } from "node:test";
import { choicesOf, gameRounds, verdictOf } from "../../specdec/ui/assets/explain/game_rules.js";
import { defineFigures } from "../../specdec/ui/assets/lib/definitions.js";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";
import { Race } from "../../specdec/ui/assets/race/race.js";
import * as telling from "../../specdec/ui/assets/explain/explain_data.js";
import { TABLE, records } from "./recording.js";

defineLanes(TABLE);

const WORDS = Object.fromEntries(
  Array.from({ length: 40 }, (_, id) => [id, ` w${"abcdefghij"[id % 10]}${"xyzu"[id % 4]}`]),
);

// A race of our loop with and without a draft. `drafts` are the guesses of each round; the target writes 1, 2, 3, ...
function raceOf(drafts, extra = {}) {
  const [begin, started, first] = records();
  const race = new Race({ ...begin, lanes: ["generate", "speculative", "speculative:0"] });
  const lane = (lane, gamma, rounds) => {
    race.take({ ...started, lane, gamma, tokens: { ...WORDS, 50: "\n", 51: "\u00e2\u0082", 52: "." } });
    rounds.forEach((round, index) => race.take({ ...first, index, draft: [], ...round }));
    race.take({ event: "finished" });
  };
  const alone = (ms) =>
    Array.from({ length: 30 }, (_, at) => ({
      committed_ids: [at + 1],
      token_id: at + 1,
      elapsed_seconds: (at + 1) ** 2 * ms, // no two take as long
      verify_seconds: ms / 2,
    }));
  lane("generate", 0, alone(0.02));
  let next = 2;
  const rounds = drafts.map((guesses, at) => {
    const miss = guesses.findIndex((id, place) => id !== next + place);
    const kept = miss === -1 ? guesses.length : miss;
    const committed_ids = Array.from({ length: kept + 1 }, (_, place) => next + place);
    next += kept + 1;
    const status = (place) => (place < kept ? "accepted" : place === kept ? "rejected" : "discarded");
    return {
      draft: guesses.map((token_id, place) => ({ token_id, status: status(place) })),
      committed_ids,
      token_id: committed_ids.at(-1),
      token_kind: miss === -1 ? "bonus" : "correction",
      draft_seconds: 0.001 * (at + 1),
      verify_seconds: 0.01 * (at + 1),
      elapsed_seconds: 0.1 * (at + 2),
      ...extra,
    };
  });
  lane("speculative", 3, [{ committed_ids: [1], token_id: 1, elapsed_seconds: 0.1 }, ...rounds]);
  lane("speculative", 0, alone(0.01));
  return { race, lane: race.lanes.get("speculative") };
}

test("the shown round has accepted guesses, a miss, and guesses after it", () => {
  const { race, lane } = raceOf([
    [30, 31, 32], // 2 is right: nothing kept
    [3, 4, 5], // all kept
    [7, 8, 30], // nothing behind the miss
    [10, 30],
    [12, 30],
  ]);
  assert.equal(telling.fullRounds(lane).length, 3);
  assert.equal(telling.tellingRound(race, lane).index, 3);
  const { race: other, lane: behind } = raceOf([
    [2, 3, 4, 30],
    [6, 7, 30, 31],
  ]);
  assert.equal(telling.tellingRound(other, behind).index, 2);
  const { race: third, lane: missing } = raceOf([
    [2, 3, 4],
    [6, 7, 30],
  ]);
  third.bytes.set(8, [46]); // a full stop instead of a word
  assert.equal(telling.tellingRound(third, missing).index, 2);
});

test("a round that something slowed is not the one shown", () => {
  const { race, lane } = raceOf([
    [2, 3, 4, 30, 31],
    [6, 7, 8, 30, 31],
    [10, 11, 30, 31, 32],
  ]);
  assert.equal(telling.tellingRound(race, lane).index, 1);
  for (const round of lane.rounds.slice(1)) round.elapsed_seconds += 0.1; // the first one took twice as long
  assert.equal(telling.tellingRound(race, lane).index, 2);
  const alone = race.lanes.get("speculative:0").rounds;
  for (const round of alone.slice(6)) round.elapsed_seconds += 9; // of the second one's tokens, one by one
  assert.equal(telling.tellingRound(race, lane).index, 3);
});

test("a race without guesses gives no steps", () => {
  const { race, lane } = raceOf([]);
  assert.equal(telling.tellingRound(race, lane), undefined);
});

test("the words of a round follow the text before it", () => {
  const { race, lane } = raceOf([[2, 3, 30]]);
  const words = telling.wordsOf(race, lane, lane.rounds[1]);
  assert.deepEqual(words, {
    context: WORDS[5],
    last: WORDS[1],
    guesses: [WORDS[2], WORDS[3], WORDS[30]],
    added: WORDS[4],
  });
  assert.equal(telling.endOf("one two three", 8), "\u2026 three");
  assert.equal(telling.endOf("one two", 8), "one two");
});

test("the times are the race's own: medians of like passes, against our loop without a draft", () => {
  const drafts = [[2, 3, 30], [5, 30, 31], [30, 31, 32], [8]];
  const { race, lane } = raceOf(drafts);
  const times = telling.timesOf(race.lanes, lane, lane.rounds[1]);
  assert.equal(times.draft, 0.001);
  assert.equal(times.check, 0.02); // of 10, 20 and 30 ms; the round with one guess is another pass
  assert.equal(times.checks, 3);
  assert.equal(times.one, 0.005);
  assert.ok(times.oneIsLoop);
  assert.ok(Math.abs(times.round - 0.1) < 1e-9);
  assert.equal(times.alone.length, 3);
  assert.ok(Math.abs(telling.sum(times.alone) - 0.15) < 1e-9);
  race.lanes.delete("speculative:0");
  const plain = telling.timesOf(race.lanes, lane, lane.rounds[1]);
  assert.ok(!plain.oneIsLoop && Math.abs(telling.sum(plain.alone) - 0.3) < 1e-9);
});

test("unknown figures of a race are left out", () => {
  const { race, lane } = raceOf([[2, 3, 30]], { draft_seconds: null, verify_seconds: null });
  for (const name of ["generate", "speculative:0"]) race.lanes.delete(name);
  const { draft, check, one, alone } = telling.timesOf(race.lanes, lane, lane.rounds[1]);
  assert.deepEqual([draft, check, one, alone], [null, null, null, null]);
});

test("a single token is shown with visible signs, never empty", () => {
  assert.equal(telling.shown(" dog"), "dog");
  assert.equal(telling.shown("\n"), "\u21b5");
  assert.equal(telling.shown("  "), "\u2423\u2423");
  assert.equal(telling.shown(""), "\u00b7");
  assert.equal(telling.shown("a\u202eb"), "a\u25a1b");
});

test("a ratio that the judge takes for noise is no difference", () => {
  defineFigures({ figures: {}, shrunk: 0.95 });
  assert.equal(telling.ratioInWords(1.04), "as long as");
  assert.equal(telling.ratioInWords(1.42), "1.4 times as long as");
});

test("two times beside their ratio have digits enough for a reader who divides them", () => {
  const written = (one, other) => {
    const places = telling.placesBeside(one, other);
    return [one, other].map((seconds) => telling.milliseconds(seconds, places));
  };
  assert.deepEqual(written(0.00387, 0.00214), ["3.87\u00a0ms", "2.14\u00a0ms"]); // 3.9 / 2.1 is 1.9
  assert.deepEqual(written(0.0081, 0.0057), ["8.1\u00a0ms", "5.7\u00a0ms"]);
  for (let at = 1; at < 400; at++) {
    const [one, other] = [0.0003 + at * 0.000137, 0.0002 + at * 0.0000811];
    const [first, second] = written(one, other).map(parseFloat);
    assert.equal((first / second).toFixed(1), (one / other).toFixed(1));
  }
  assert.ok(telling.placesBeside(0.001, 0) < 9, "no time at all has no ratio");
});

const LONG = [
  [2, 3, 30], // 2 to 4
  [5, 30, 31], // 5, 6
  [7, 8, 9], // 7 to 10
  [30, 31, 32], // 11
  [12, 13, 30], // 12 to 14
  [15, 16, 17], // 15 to 18
  [19, 20, 30],
];

test("a round of the game never shows the tokens of another round or of the steps", () => {
  const { race, lane } = raceOf(LONG);
  const told = lane.rounds[1];
  const games = gameRounds(race, lane, told);
  assert.ok(games.length > 1 && games.length <= 4);
  let free = 4; // ids written by the round that is told
  for (const { round, truth, length } of games) {
    assert.notEqual(round, told);
    assert.ok(truth[0] > free && truth.length === length + 1);
    assert.deepEqual(
      truth,
      truth.map((_, at) => truth[0] + at),
    );
    free = truth.at(-1);
  }
});

test("half a character is not offered as a choice", () => {
  const { race, lane } = raceOf(LONG);
  for (let id = 5; id <= 21; id++) race.bytes.set(id, [0xe2]);
  assert.deepEqual(gameRounds(race, lane, lane.rounds[1]), []);
});

test("choices hold the target's token and the draft's, differ as shown, and are the same each time", () => {
  const { race, lane } = raceOf(LONG);
  race.bytes.set(33, race.bytes.get(9)); // another token that looks as one of the text
  const [first] = gameRounds(race, lane, null);
  for (let place = 0; place < first.length; place++) {
    const ids = choicesOf(race, lane, first, place);
    assert.equal(ids.length, 4);
    assert.ok(ids.includes(first.truth[place]));
    assert.equal(new Set(ids.map((id) => telling.shown(telling.textOf(race, id)))).size, 4);
    assert.deepEqual(ids, choicesOf(race, lane, first, place));
  }
  const miss = telling.keptOf(first.round);
  assert.ok(choicesOf(race, lane, first, miss).includes(first.round.draft[miss].token_id));
  const orders = [0, 1, 2].map((place) => choicesOf(race, lane, first, place).indexOf(first.truth[place]));
  assert.ok(new Set(orders).size > 1, "the right one always stands at the same place");
});

test("a word is offered once", () => {
  const { race, lane } = raceOf(LONG);
  for (const game of gameRounds(race, lane, null))
    for (let place = 0; place < game.length; place++) {
      race.bytes.set(33, race.bytes.get(game.truth[0] + place - 1)); // looks as the token before, and was guessed here
      game.round.draft[place].token_id = 33;
      assert.ok(!choicesOf(race, lane, game, place).includes(33));
    }
});

test("after a miss the choices hold what the draft guessed there later, on the true text", () => {
  const { race, lane } = raceOf([
    [30, 31, 32], // 2
    [33, 34, 35], // 3
    [4, 5, 6],
  ]);
  const [first] = gameRounds(race, lane, null);
  const ids = choicesOf(race, lane, first, 1);
  for (const id of [3, 33, 31]) assert.ok(ids.includes(id));
});

test("the target keeps guesses up to the first miss and adds a token of its own", () => {
  const truth = [1, 2, 3, 4];
  assert.deepEqual(verdictOf([1, 9, 3], truth), {
    kept: 1,
    kinds: ["accepted", "rejected", "discarded"],
    added: 2,
    addedKind: "correction",
    wrote: 2,
  });
  assert.equal(verdictOf([1, 2, 3], truth).addedKind, "bonus");
  assert.equal(verdictOf([1, 2], truth).added, 3);
  assert.deepEqual(verdictOf([9], truth).kinds, ["rejected"]);
});
