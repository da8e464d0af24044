// The replay of a race: both lanes on one clock.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, click, one, pass, recorded, recordsOf, reduceMotion, send, show, showRun, state, words } from "./page.js";

const { momentOf } = await import("../../specdec/ui/assets/race/race.js");
const { raceShown } = await import("../../specdec/ui/assets/race/current_race.js");
const records = recordsOf(recorded());
const visible = () =>
  ["generate", "speculative"].map(
    (lane) => all(`.sd-box.${lane} .sd-round:not(.later) > .sd-token:not(.rejected, .discarded, .unborn)`).length,
  );
const move = (share) => {
  one(".sd-replay .sd-scrub").value = String(share);
  send(".sd-replay .sd-scrub", "input");
};

await show(recorded(), true);

test("the shown race plays once by itself", async () => {
  assert.ok(state.replaying);
  const seen = new Set();
  for (let at = 0; at < 60 && state.replaying; at++) {
    await pass(200);
    seen.add(visible().join());
  }
  assert.ok(!state.replaying && seen.size > 10);
  assert.deepEqual(visible(), [64, 64]);
  assert.equal(all(".sd-round.later, .sd-round.guessing").length, 0);
  await pass(500);
  assert.ok(!state.replaying && one('.sd-replay [aria-label="Play"]'), "it plays once, and then rests");
});

test("the slowest lane lasts about eight seconds, and the words say how slow it is", () => {
  const slow = Number(words(".sd-replayWords").match(/Replay of measured times, 1\/(\d+)× speed/)[1]);
  const longest = Math.max(...all(".sd-stripEnd").map((end) => parseFloat(end.textContent)));
  assert.ok(longest * slow > 5 && longest * slow < 17, `${longest} s at 1/${slow}`);
});

test("it can be moved, paused and skipped, and both lanes are at the same moment", () => {
  const counts = [100, 400, 700, 1000].map((share) => {
    move(share);
    return visible();
  });
  for (const lane of [0, 1]) {
    const written = counts.map((both) => both[lane]);
    assert.deepEqual(
      written,
      [...written].sort((one, other) => one - other),
    );
    assert.equal(written.at(-1), 64);
  }
  assert.ok(counts[1][1] > counts[1][0], "the faster lane is ahead");
  click('[aria-label="Replay from the start"]');
  assert.ok(state.replaying);
  click('[aria-label="Pause"]');
  assert.match(words(".sd-box.generate .sd-boxStatus"), /^\d+ of 64 tokens$/);
  click('[aria-label="Skip to the end"]');
  assert.ok(!state.replaying && all(".sd-round.later").length === 0);
});

test("guesses are grey until the target has checked them", () => {
  let seen = 0;
  for (let share = 5; share < 1000; share += 5) {
    move(share);
    const round = one(".sd-box.speculative .sd-round.guessing");
    if (!round) continue;
    seen += 1;
    const born = [...round.querySelectorAll(".sd-token")].filter(
      (mark) => mark.detail.guess && !mark.matches(".unborn"),
    );
    const seconds = (share / 1000) * Math.max(...[...raceShown().lanes.values()].map((lane) => lane.duration));
    assert.equal(born.length, momentOf(raceShown().lanes.get("speculative"), seconds).guesses);
    assert.ok(round.matches(".later"), "its target's token is not there yet");
  }
  assert.ok(seen > 5);
  assert.equal(all(".sd-box.generate .sd-round.guessing").length, 0);
  move(1000);
  assert.equal(all(".sd-round.guessing, .unborn").length, 0);
});

test("with reduced motion the end is shown at once, and Play still plays", async () => {
  reduceMotion(true);
  await showRun(records, true);
  assert.ok(!state.replaying);
  assert.deepEqual(visible(), [64, 64]);
  click('[aria-label="Play"]');
  assert.ok(state.replaying);
  click('[aria-label="Skip to the end"]');
  reduceMotion(false);
});

test("a race of one's own plays when it has ended", async () => {
  await showRun(records, true);
  assert.ok(state.replaying);
  click('[aria-label="Skip to the end"]');
});
