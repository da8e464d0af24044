// A chosen file is read as text, packed or not, or refused in a sentence before it can fill the memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { textOf } from "../../specdec/ui/assets/lib/files.js";

const file = (bytes, name = "set.jsonl") => new File([bytes], name);
const text = '{"prompt": "naïve 🙂"}\r\n';

test("a text comes as it is, packed with gzip or not, whatever the name", async () => {
  assert.equal(await textOf(file(text), 100), text);
  assert.equal(await textOf(file(gzipSync(text)), 100), text);
  assert.equal(await textOf(file("\ufeff" + text), 100), text);
  assert.equal(await textOf(file(""), 100), "");
});

test("what cannot be taken is said by its name", async () => {
  const damaged = gzipSync(text).subarray(0, 20);
  const folder = Object.assign(file(text), { arrayBuffer: () => Promise.reject(new Error("no")) });
  for (const [given, words] of [
    [file("x".repeat(1_000_001)), "set.jsonl has more than 1\u00a0MB, the limit of this page."],
    [file(gzipSync("x".repeat(1_000_001))), "set.jsonl unpacks to more than 1\u00a0MB, the limit of this page."],
    [file(damaged), "set.jsonl is a damaged gzip file."],
    [file(new Uint8Array([0x89, 0x50, 0xff]), "photo.png"), "photo.png cannot be read as UTF-8 text; give a file of"],
    [folder, "set.jsonl cannot be read."],
  ])
    await assert.rejects(textOf(given, 1e6), (error) => error.message.startsWith(words));
});
