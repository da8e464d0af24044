// A whole run packed into a link and unpacked again; where the browser is needed, a stand-in takes its place.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, test } from "node:test";
import { fromBase64, toBase64 } from "../../specdec/ui/assets/lib/address.js";
import { BitReader, BitWriter } from "../../specdec/ui/assets/share/bit_coding.js";
import { deflate } from "../../specdec/ui/assets/lib/inflate.js";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";
import { checksum } from "../../specdec/ui/assets/share/envelope.js";
import { Race, VERSION, kindsOf, readRecording } from "../../specdec/ui/assets/race/race.js";
import { TABLE, records } from "./recording.js";

defineLanes(TABLE);
const stand = /** @type {any} */ (globalThis);
let link;

// A visit with this address.
async function visit(address) {
  const url = new URL(address);
  stand.location = { href: url.href, hash: url.hash };
  return import("../../specdec/ui/assets/share/link.js");
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

test("a grammar rides along, and what it forced stays told", async () => {
  const all = records();
  const grammar = { kind: "json-schema", text: '{"enum": ["<b>", "\\u2028"]}' };
  all[0].settings = { ...all[0].settings, grammar: `json-schema:${grammar.text}` };
  for (const record of all.filter(({ event }) => event === "started"))
    record.params = { ...record.params, grammar, draft_mask: record.lane === "generate" };
  const drafted = all.find(({ event, draft }) => event === "round" && draft?.length);
  drafted.drafted_by = "grammar";
  const { runInAddress, settingsInAddress } = await visit(await link.runLink(race(all)));
  const found = await runInAddress();
  for (const lane of ["generate", "speculative"]) {
    const { params } = found.find((record) => record.event === "started" && record.lane === lane);
    assert.deepEqual(params.grammar, grammar);
    assert.equal(params.draft_mask, lane === "generate");
  }
  assert.equal(found.find(({ event, draft }) => event === "round" && draft?.length).drafted_by, "grammar");
  assert.equal((await settingsInAddress()).grammar, `json-schema:${grammar.text}`);
});

test("a fact that may be missing and may be null stays what it is", async () => {
  const missing = records();
  const target = { ...missing[1].pair.target };
  delete target.revision;
  missing[1].pair = { ...missing[1].pair, target: { ...target, own_forward: "It is compiled." } };
  for (const all of [records(), missing]) {
    const { runInAddress } = await visit(await link.runLink(race(all)));
    const [{ started }] = race(await runInAddress()).lanes.values();
    assert.deepEqual(started.pair, all[1].pair);
  }
});

test("the beginning of a text travels", async () => {
  const all = records();
  all[1].head = all[6].head = ["A"];
  const { runInAddress } = await visit(await link.runLink(race(all)));
  const after = race(await runInAddress());
  assert.deepEqual([...after.lanes.values()].map((lane) => lane.started.head), [["A"], ["A"]]); // prettier-ignore
});

// The race that ships with the package: three lanes, 64 tokens.
const recorded = () => readRecording(readFileSync("specdec/ui/assets/recorded.jsonl", "utf8"));
const LABELS = [
  ["generate", "generate", null, "Plain"],
  ["speculative", "speculative", null, "Speculative"],
  ["speculative:0", "speculative", 0, "Our loop, no draft"],
].map(([key, name, gamma, label]) => ({ key, name, gamma, label }));

test("a real run comes back as it was, but for probabilities", async () => {
  defineLanes(LABELS);
  const before = race(recorded());
  const address = await link.runLink(before);
  assert.ok(address.length < 2250, `${address.length} characters`);
  const after = race(await (await visit(address)).runInAddress());
  for (const part of ["settings", "pair", "lanes", "runs"]) assert.deepEqual(after.begin[part], before.begin[part]);
  const tables = { lanes: null, places: null, passes: null, checks: null };
  const left = { ...tables, details: null, time: null, whatif: null };
  assert.deepEqual(shown(after.verdict), shown({ ...before.verdict, ...left }));
  for (const [key, lane] of before.lanes) {
    const other = after.lanes.get(key);
    assert.deepEqual({ ...other.started, ...NUMBERED }, { ...lane.started, ...NUMBERED });
    assert.deepEqual(written(after, other), written(before, lane));
    assert.deepEqual(other.end, lane.end);
    assert.equal(other.finished.finish_reason, lane.finished.finish_reason);
    assert.deepEqual(other.rounds.map(kindsOf), lane.rounds.map(kindsOf));
    lane.rounds.forEach((round, at) => {
      assert.deepEqual(guesses(after, other.rounds[at]), guesses(before, round));
      for (const part of ["draft_seconds", "verify_seconds"])
        assert.equal(milliseconds(other.rounds[at][part]), milliseconds(round[part]));
      assert.ok(Math.abs(other.rounds[at].elapsed_seconds - round.elapsed_seconds) < 1e-4);
    });
  }
  defineLanes(TABLE);
});

const NUMBERED = { prompt_ids: [], tokens: {} }; // a link numbers the tokens anew
const milliseconds = (seconds) => seconds !== null && (seconds * 1000).toFixed(1); // as the page shows them

// A verdict as the page shows it: shares with two digits, steps in hundredths of a millisecond.
const shown = ({ gain, engine, speculation, why, ...verdict }) => ({
  ...verdict,
  factors: [gain, engine, speculation].map((factor) => factor.toFixed(2)),
  why: { ...why, steps: why.steps.map(([name, seconds]) => [name, (seconds * 1000).toFixed(2)]) },
});

const guesses = (found, round) =>
  round.draft.map((token) => [
    token.status,
    found.bytes.get(token.token_id),
    found.bytes.get(token.target_token_id) ?? null,
  ]);

test("which way guessed travels, for a pair that drafts in two", async () => {
  const all = records();
  all[8].drafted_by = "prompt-lookup";
  all.splice(9, 0, { ...all[8], index: 2, drafted_by: "model" });
  const { runInAddress } = await visit(await link.runLink(race(all)));
  const [plain, ours] = race(await runInAddress()).lanes.values();
  assert.deepEqual(
    ours.rounds.map((round) => round.drafted_by),
    [undefined, "prompt-lookup", "model"],
  );
  assert.ok(plain.rounds.every((round) => !("drafted_by" in round)));
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
  assert.equal(verdict.whatif, null);
  assert.deepEqual(verdict.rates, { generate: "1 tokens/s" });
});

test("a link that was cut short or changed is called damaged, and the form keeps its settings", async () => {
  const address = await link.runLink(race());
  const middle = address.length - 30;
  const changed = address.slice(0, middle) + (address[middle] === "A" ? "B" : "A") + address.slice(middle + 1);
  for (const damaged of [
    address.slice(0, -20),
    address.slice(0, 20),
    address + "AAAA",
    changed,
    "http://page/#run=!",
  ]) {
    const { runInAddress, settingsInAddress } = await visit(damaged);
    await assert.rejects(runInAddress(), /damaged/);
    assert.deepEqual(await settingsInAddress(), {});
  }
});

test("columns of any whole numbers come back", () => {
  const columns = [
    [],
    [7],
    [5, 5, 5],
    [0, 1, 0, 3, 2, 300_000_000, 1],
    [-4, 0, 9, -1],
    Array.from({ length: 500 }, (_, at) => (at * at * 7919) % 1000),
    [2 ** 40, 0],
  ];
  const writer = new BitWriter();
  for (const column of columns) writer.column(column);
  const reader = new BitReader(writer.bytes);
  for (const column of columns) assert.deepEqual(reader.column(), column);
  const short = new BitReader(writer.bytes.slice(0, 3));
  assert.throws(() => columns.forEach(() => short.column()), RangeError);
});

test("a column that says it is very long is refused", () => {
  const writer = new BitWriter();
  writer.number(2 ** 40);
  assert.throws(() => new BitReader(writer.bytes).column(), RangeError);
});

test("any bytes stand in a link", () => {
  const bytes = Uint8Array.of(0, 255, 62, 63);
  assert.deepEqual(fromBase64(toBase64(bytes)), bytes);
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

// A link with these facts and columns, made as `pack` makes one.
async function forged(facts, bits) {
  const packed = await deflate(new TextEncoder().encode(`${facts}\0`));
  const all = Uint8Array.of(packed.length >> 8, packed.length & 255, ...packed, ...bits);
  return `http://page/#run=${toBase64(Uint8Array.of(...checksum(all), ...all))}`;
}

// A lane of `count` rounds without tokens; each column takes a few bits, whatever its length.
function lane(count, rests = count) {
  const writer = new BitWriter();
  writer.column([0]); // the prompt
  writer.number(0);
  writer.column([0]); // its only token
  for (let column = 0; column < 5; column++) writer.column(Array(count).fill(0));
  writer.column([]);
  writer.number(0);
  for (let times = 0; times < 2; times++) {
    writer.column(Array(count).fill(1));
    writer.column([]);
  }
  writer.column(Array(rests).fill(5));
  writer.number(0);
  return writer.bytes;
}

test("a link made to hurt is refused before anything is built of it", async () => {
  const facts = JSON.stringify([VERSION, [], [["generate", [], null]], []]);
  const hurting = {
    "too long": `http://page/#run=${"A".repeat(5000)}`,
    "very many rounds": await forged(facts, lane(100_000)),
    "columns of different lengths": await forged(facts, lane(1, 40_000)),
    "facts that unpack to too much": await forged("0".repeat(2_000_000), []),
  };
  const older = await visit(await forged(JSON.stringify([VERSION - 1, [], [], []]), []));
  await assert.rejects(older.runInAddress(), /another version of this page/);
  const oldest = await visit(await forged('{"begin":{}}', []));
  await assert.rejects(oldest.runInAddress(), /another version of this page/);
  const { from } = Array;
  for (const [name, address] of Object.entries(hurting)) {
    const { runInAddress } = await visit(address);
    let longest = 0;
    Array.from = /** @type {any} */ (
      (values, ...rest) => {
        longest = Math.max(longest, values.length ?? 0);
        return from.call(Array, values, ...rest);
      }
    );
    try {
      await assert.rejects(runInAddress(), /damaged|characters/, name);
    } finally {
      Array.from = from;
    }
    assert.ok(longest <= 50_000, `${name}: ${longest} values were built`);
  }
});

test("a run with more rounds or longer facts than a link holds gives none", async () => {
  const many = new BitWriter();
  many.column(Array(50_000).fill(0));
  assert.ok(many.fits);
  many.column([0]);
  assert.ok(!many.fits);
  const all = records();
  all[0].settings.prompt = "a".repeat(200_000); // it packs well
  assert.equal(await link.runLink(race(all)), null);
});
