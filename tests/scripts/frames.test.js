// Races whose lines come in pieces, while animation frames come late, in another order or never. What the page shows
// in the end depends on none of that. SPECDEC_FULL tries 200 races.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, chart, click, clock, one, pass, race, recorded, recordsOf, send, show, state, textOf } from "./page.js";

const { raceShown } = await import("../../specdec/ui/assets/race/current_race.js");
const { TokenText } = await import("../../specdec/ui/assets/race/lines.js");

const RACES = process.env.SPECDEC_FULL ? 200 : 8;
const NAMES = ["greedy", "sampled", "block", "lossy", "lanes", "ended", "repeated", "loop", "stopped"];
const LANES = ["generate", "speculative"];
await show(recorded()); // the greeting; each race after it plays when it has ended

// Numbers from 0 to 1 that follow from a seed (mulberry32).
function chances(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// A hidden round is followed by hidden rounds only.
function requireNoGap(seed) {
  for (const ribbon of all(".sd-ribbon")) {
    const rounds = [...ribbon.children].filter(({ classList }) => classList.contains("sd-round"));
    const hidden = rounds.map(({ classList }) => classList.contains("later"));
    const first = hidden.indexOf(true);
    assert.ok(first < 0 || hidden.slice(first).every(Boolean), `race ${seed}: words are missing from the middle`);
  }
}

// All views show the whole race.
function requireWhole(seed) {
  const said = `race ${seed}`;
  assert.equal(all(".sd-ribbon :is(.later, .guessing, .unborn)").length, 0, `${said}: hidden tokens`);
  for (const lane of raceShown().lanes.values()) {
    const text = new TokenText(raceShown().bytes, lane.started.head);
    lane.started.prompt_ids.forEach((id) => text.push(id));
    const written = lane.rounds.flatMap((round) => round.committed_ids.map((id) => text.push(id))).join("");
    const ribbon = all(".sd-ribbon")[raceShown().begin.lanes.indexOf(lane.key)];
    const place = LANES.includes(lane.key) ? one(`.sd-box.${lane.key} .sd-ribbon`) : ribbon;
    const marks = [...place.querySelectorAll(".sd-token:not(.rejected, .discarded)")];
    assert.equal(marks.map((mark) => mark.textContent).join(""), written, `${said}: the text of ${lane.key}`);
    if (lane.key === "speculative") {
      const cells = one(".sd-stripRow.near canvas").drawn.filter(([, , , y]) => y > 12);
      assert.equal(cells.length, lane.tokens - lane.counts[0], `${said}: its tokens in the strip`);
    }
    if (raceShown().verdict.stopped) continue; // drawn as far as it is compared
    const line = chart().lines.find(({ name }) => name === lane.key);
    assert.equal(line.y.at(-1), lane.tokens, `${said}: the chart of ${lane.key}`);
  }
}

function act(chance) {
  const acts = [
    () => click('[aria-label="Replay from the start"]'),
    () => click('[aria-label="Skip to the end"]'),
    () => click(one('[aria-label="Pause"]') ?? '[aria-label="Play"]'),
    () => {
      one(".sd-replay .sd-scrub").value = String(Math.floor(chance() * 1000));
      send(".sd-replay .sd-scrub", "input");
    },
    () => {
      one("#sd-line-gamma").value = String(Math.floor(chance() * 17));
      send("#sd-line-gamma", "input");
    },
  ];
  acts[Math.floor(chance() * acts.length)]();
}

test(`${RACES} races with late, reordered and dropped frames end with every word`, async () => {
  clock.stubborn = true;
  for (let seed = 1; seed <= RACES; seed++) {
    const chance = chances(seed);
    const [dropped, delay] = [chance() * 0.9, chance() * 900];
    clock.late = () => (chance() < dropped ? Infinity : chance() * delay);
    const pick = Math.floor(chance() * (NAMES.length + 1));
    const [begin, ...rest] = pick < NAMES.length ? race(NAMES[pick]) : recordsOf(recorded());
    const lines = [{ ...begin, origin: "run", number: 9000 + seed }, ...rest].map((record) => textOf([record]));
    if (chance() < 0.5) act(chance); // on the race before, whose frames may come during this one
    state.begin();
    const cuts = Array.from({ length: Math.floor(chance() * 8) }, () => 1 + Math.floor(chance() * (lines.length - 1)));
    for (const end of [...cuts.sort((one, other) => one - other), lines.length]) {
      await show(lines.slice(0, end).join(""), true);
      if (chance() < 0.3) await pass(chance() * 200);
      requireNoGap(seed);
    }
    state.end();
    for (let acts = Math.floor(chance() * 4); acts > 0; acts--) {
      await pass(chance() * 3000, 20 + chance() * 300);
      act(chance);
      requireNoGap(seed);
    }
    if (state.replaying && one('[aria-label="Play"]')) click('[aria-label="Play"]'); // a paused replay has not ended
    for (let at = 0; at < 400 && state.replaying; at++) await pass(100, 100);
    assert.ok(!state.replaying, `race ${seed}: its replay does not end`);
    await pass(3000, 200);
    requireWhole(seed);
  }
});
