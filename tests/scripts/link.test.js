// A whole run packed into a link and unpacked again; where the browser is needed, a stand-in takes its place.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { defineFigures } from "../../specdec/ui/assets/definitions.js";
import { defineLanes } from "../../specdec/ui/assets/lanes.js";
import { Race, kindsOf } from "../../specdec/ui/assets/race.js";
import { TABLE, records } from "./recording.js";

defineLanes(TABLE);
const stand = /** @type {any} */ (globalThis);
stand.window = { addEventListener() {} };
stand.document = { querySelector: () => null };
let visits = 0;
let link;

// A visit with this address: the module keeps what it unpacked, so each visit loads it anew.
async function visit(address) {
  const url = new URL(address);
  stand.location = { href: url.href, hash: url.hash, reload() {} };
  return import(`../../specdec/ui/assets/link.js?visit=${visits++}`);
}

function race(all = records()) {
  const found = new Race(all[0]);
  for (const record of all.slice(1)) found.take(record);
  return found;
}

// The bytes of each token that a lane wrote: a link numbers the tokens anew.
function written(found, lane) {
  return lane.rounds.flatMap((round) => round.committed_ids.map((id) => found.bytes.get(id)));
}

beforeEach(async () => {
  link = await visit("http://page/?x=1");
});

test("a run comes back with its tokens, their kinds, times and settings", async () => {
  const address = await link.runLink(race());
  assert.ok(address.startsWith("http://page/#run="));
  const { runInAddress, settingsInAddress } = await visit(address);
  const [before, after] = [race(), race(await runInAddress())];
  for (const key of ["generate", "speculative"]) {
    const [one, other] = [before.lanes.get(key), after.lanes.get(key)];
    assert.deepEqual(written(after, other), written(before, one));
    assert.deepEqual(other.rounds.map(kindsOf), one.rounds.map(kindsOf));
    other.seconds.forEach((seconds, at) => assert.ok(Math.abs(seconds - one.seconds[at]) < 1e-4));
    assert.equal(other.finished.finish_reason, one.finished.finish_reason);
  }
  assert.deepEqual(await settingsInAddress(), { prompt: "a" });
});

test("definitions travel by their names", async () => {
  const meaning = "Guesses kept / guesses tested.";
  defineFigures({ acceptance: meaning });
  const all = records();
  all.at(-1).figures = [
    { value: "1", label: "a", definition: meaning },
    { value: "2", label: "b", definition: "of no table" },
    { value: "3", label: "c" },
  ];
  const address = await link.runLink(race(all));
  const there = await visit(address);
  assert.deepEqual((await there.runInAddress()).at(-1).figures, all.at(-1).figures);
  defineFigures({});
  const { figures } = (await (await visit(address)).runInAddress()).at(-1);
  assert.equal(figures[0].definition, "acceptance", "so it stands in the link");
});

test("probabilities do not travel", async () => {
  const all = records();
  all[8].draft[0].draft_prob = 0.123456;
  const { runInAddress } = await visit(await link.runLink(race(all)));
  assert.ok(!JSON.stringify(await runInAddress()).includes("0.123456"));
});

test("other draft lengths do not travel, the lanes' rates do", async () => {
  const all = records();
  Object.assign(all.at(-1), { whatif: { hits: [0, 1] }, rates: { generate: "1 tokens/s" } });
  const { runInAddress } = await visit(await link.runLink(race(all)));
  const verdict = (await runInAddress()).at(-1);
  assert.equal(verdict.whatif, undefined);
  assert.deepEqual(verdict.rates, { generate: "1 tokens/s" });
});

test("a link that was cut short is called damaged, and the form keeps its settings", async () => {
  const address = await link.runLink(race());
  const { runInAddress, settingsInAddress } = await visit(address.slice(0, -20));
  await assert.rejects(runInAddress(), /damaged/);
  assert.deepEqual(await settingsInAddress(), {});
});

test("a run too long for a link gives none", async () => {
  const all = records();
  let number = 1;
  const next = () => (number = (number * 48271) % 2147483647); // digits that do not pack well
  all[0].settings.prompt = Array.from({ length: 2000 }, next).join(" ");
  assert.equal(await link.runLink(race(all)), null);
});

test("settings stand in a link as they are", async () => {
  const { settingsInAddress } = await visit(link.settingsLink({ prompt: "a b&c", gamma: "5" }));
  assert.deepEqual(await settingsInAddress(), { prompt: "a b&c", gamma: "5" });
});
