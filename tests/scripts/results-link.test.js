// Results packed into a link and unpacked again.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fromBase64, toBase64 } from "../../specdec/ui/assets/lib/address.js";
import { BitWriter } from "../../specdec/ui/assets/share/bit_coding.js";
import { opened, seal } from "../../specdec/ui/assets/share/envelope.js";
import { packResults, unpackResults } from "../../specdec/ui/assets/share/packed_results.js";
import { SCHEMA } from "../../specdec/ui/assets/race/recording_schema.js";

const recorded = (key) =>
  readFileSync(new URL(`../../specdec/data/recorded_${key}.jsonl`, import.meta.url), { encoding: "utf8" });
const records = (text) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
const text = (all) => all.map((record) => `${JSON.stringify(record)}\n`).join("");
const back = async (all) => records(await unpackResults(await packResults(text(all))));

test("results come back as they were, to the last digit", async () => {
  for (const key of ["sweep", "bench"]) {
    const all = records(recorded(key));
    assert.deepEqual(await back(all), all);
    assert.deepEqual(await back(all.slice(0, 4)), all.slice(0, 4)); // of a stopped measurement
  }
});

test("values of any kind come back, those that are missing and those that no column of numbers takes", async () => {
  const [head, ...calls] = records(recorded("sweep"));
  const values = [null, 0, -3, 0.5, 1e300, 1e-9, 2 ** 53 + 2, "confidence:0.4", "é𝄞", [7, 7], [], true];
  for (const at of calls.keys()) {
    calls[at].gamma = values[at % values.length];
    calls[at].metrics.draft_seconds = at % 3 ? (at * 7919) / 1e6 : null;
    calls[at].metrics.verify_seconds = Math.sqrt(at);
  }
  assert.deepEqual(await back([head, ...calls]), [head, ...calls]);
});

test("a default sweep whose times do not pack well fits into a link", async () => {
  const all = records(recorded("sweep"));
  let number = 1;
  const next = () => (number = (number * 48271) % 2147483647);
  for (const { metrics } of all.slice(1))
    for (const name of ["prefill_seconds", "decode_seconds", "draft_seconds", "verify_seconds"])
      metrics[name] = (next() % 1e6) / 1e6;
  const { length } = toBase64(await packResults(text(all)));
  assert.ok(length < 3000, `${length}`);
});

test("what is too long for a link gives none", async () => {
  const [head, ...calls] = records(recorded("sweep"));
  const many = Array.from({ length: 100 }, () => calls).flat();
  assert.equal(await packResults(text([head, ...many])), null);
});

test("a damaged link, and one made to hurt, is refused in a sentence", async () => {
  const bytes = await packResults(recorded("sweep"));
  const packed = toBase64(bytes);
  const bits = new BitWriter();
  bits.column(Array(40_000).fill(0));
  bits.column(Array(40_000).fill(0));
  const rows = new BitWriter();
  rows.column([0, 1]);
  rows.column([0]);
  const link = async (facts, writer) => toBase64(await seal(JSON.stringify(facts), writer));
  const refused = {
    "cut short": packed.slice(0, -20),
    "with another beginning": packed.slice(40),
    "with other characters": `${packed}!`,
    empty: "",
    short: "AAAA",
    "of nothing": toBase64(await seal("{}", new BitWriter())),
    "with very many values": await link([SCHEMA.results, [], [[0]], [[0]]], { bytes: bits.bytes, fits: true }),
    "with columns of different lengths": await link([SCHEMA.results, [], [[5, 6], [7]], [null]], rows),
    "with a value that is not listed": await link([SCHEMA.results, [], [[5]], [null]], rows),
    "without columns": await link([SCHEMA.results, [], [], []], rows),
  };
  for (const [name, address] of Object.entries(refused))
    await assert.rejects(opened(address, unpackResults), /damaged|another version/, name);
  const calls = new BitWriter();
  for (const column of [2000, 2000]) calls.column(Array(column).fill(0));
  const heavy = await link([SCHEMA.results, [], [["a".repeat(90_000)]], [[0]]], calls);
  assert.ok(heavy.length < 300);
  await assert.rejects(opened(heavy, unpackResults), /damaged/, "a long value in each of very many calls");
  const few = new BitWriter();
  for (const column of [400, 400]) few.column(Array(column).fill(0));
  const long = await link([SCHEMA.results, [], [["a".repeat(90_000)]], [[0]]], few);
  await assert.rejects(opened(long, unpackResults), /damaged/, "a long value in each call");
  await assert.rejects(opened("A".repeat(5000), unpackResults), /has 5000 characters, more than the 4096 of a link/);
  const older = await link([SCHEMA.results - 1, [], [], []], new BitWriter());
  await assert.rejects(opened(older, unpackResults), /another version of this page/);
  assert.equal(await opened(packed, unpackResults), await unpackResults(fromBase64(packed)));
});

test("names of a forged link change no object but their own", async () => {
  const head = [null, null, null, { ["__proto__"]: { bitten: 1 } }];
  const facts = JSON.stringify([SCHEMA.results, head, [[0]], [[0]]]);
  const rows = new BitWriter();
  for (let table = 0; table < 2; table++) rows.column([0]);
  await unpackResults(await seal(facts, rows));
  assert.equal(/** @type {any} */ ({}).bitten, undefined);
});
