// A race read from its lines, and what is refused.
import assert from "node:assert/strict";
import { test } from "node:test";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";
import { Race, checked, kindsOf, readRecording } from "../../specdec/ui/assets/race/race.js";
import { TABLE, records } from "./recording.js";

defineLanes(TABLE);
const lines = (all) => all.map((record) => JSON.stringify(record)).join("\n");

test("a recording becomes lanes with their tokens and times", () => {
  const [begin, ...rest] = readRecording(lines(records()));
  const race = new Race(begin);
  for (const record of rest) race.take(record);
  assert.deepEqual([...race.lanes.keys()], ["generate", "speculative"]);
  const { tokens, duration } = race.lanes.get("speculative");
  assert.equal(tokens, 3);
  assert.ok(Math.abs(duration - 0.1) < 1e-9); // after the first token
  assert.equal(race.lanes.get("generate").roundsAt(0.15), 2);
  assert.deepEqual(race.bytes.get(6), ["b".charCodeAt(0)]);
});

test("our loop without a draft is a lane of its own where the race has it", () => {
  const all = records();
  all[0].lanes = ["generate", "speculative:0"];
  all[6].gamma = 0;
  const race = new Race(all[0]);
  for (const record of all.slice(1)) race.take(record);
  assert.deepEqual([...race.lanes.keys()], ["generate", "speculative:0"]);
});

test("each token knows how it came about", () => {
  assert.deepEqual(kindsOf(records()[8]), ["accepted", "correction"]);
  assert.deepEqual(kindsOf(records()[2]), ["target"]);
  assert.deepEqual(kindsOf({ ...records()[8], draft: null }), ["unknown", "unknown"]);
});

const broken = {
  "another version": (all) => (all[0].version = 99),
  "no beginning": (all) => all.shift(),
  "no verdict": (all) => all.pop(),
  "a lane that the page does not know": (all) => (all[0].lanes = ["generate", "elsewhere"]),
  "a field of another type": (all) => (all[2].elapsed_seconds = "soon"),
  "a number that is none": (all) => (all[2].elapsed_seconds = NaN),
  "a status that does not exist": (all) => (all[8].draft[0].status = "__proto__"),
  "a round out of its order": (all) => (all[3].index = 5),
  "an unknown kind of line": (all) => (all[3].event = "constructor"),
  "a second verdict": (all) => all.splice(5, 0, all.at(-1)),
  "a verdict on no lane": (all) => all.splice(1, all.length - 2),
  "a verdict on a run that is not there": (all) => (all.at(-1).shown = 3),
  "a text too long to draw": (all) => (all[2].committed_ids = Array(10_001).fill(6)),
  "a prompt too long to draw": (all) => (all[1].prompt_ids = Array(200_001).fill(5)),
  "time that runs backwards": (all) => (all[3].elapsed_seconds = 0.05),
  "other lengths of fewer tokens": (all) => all.at(-1).whatif.hits.pop(),
  "other lengths of more tokens": (all) => all.at(-1).whatif.wrong.push(null),
  "other lengths out of their order": (all) => all.at(-1).whatif.lengths.reverse(),
  "other lengths that give time back": (all) => (all.at(-1).whatif.costs[4] = [0, -1, 0.5]),
};
for (const [name, spoil] of Object.entries(broken))
  test(`refused: ${name}`, () => {
    const all = records();
    checked(all);
    spoil(all);
    assert.throws(() => checked(all), Error);
  });

test("a line that is not JSON is named by its number", () => {
  assert.throws(() => readRecording(lines(records().slice(0, 2)) + "\n{"), /3/);
});

test("a recording made to hurt is not read beyond what is wrong with it", () => {
  const all = records();
  const head = lines(all.slice(0, 2));
  const rounds = (count) => lines(Array.from({ length: count }, (_, index) => ({ ...all[2], index })));
  const hurting = [
    [`${head}\n${rounds(12_000)}`, /longer than this page draws/, 10_003],
    [`${head}${"\n".repeat(120_000)}`, /more than 100000 lines/, 0],
    [`${head}\n${"[".repeat(1_000_001)}`, /Line 3 has 1000001 characters/, 2],
    [lines(Array(1000).fill(all[0])), /Line 2 is in the wrong place/, 2],
    [`${head}\n{}\n${rounds(1000)}`, /Line 3/, 3],
  ];
  const { parse } = JSON;
  for (const [text, complaint, most] of hurting) {
    let parsed = 0;
    JSON.parse = (line) => {
      parsed += 1;
      return parse(line);
    };
    try {
      assert.throws(() => readRecording(text), complaint);
    } finally {
      JSON.parse = parse;
    }
    assert.ok(parsed <= most, `${parsed} lines were parsed`);
  }
});
