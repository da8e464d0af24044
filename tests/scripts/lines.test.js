// The wire's reader and the text that tokens make.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LineReader, TokenText, bytesOf } from "../../specdec/ui/assets/race/lines.js";

const line = (record) => JSON.stringify(record) + "\n";

test("only what is new is read, and a line that is not whole waits", () => {
  const reader = new LineReader();
  const begin = line({ event: "begin", number: 1 });
  const round = line({ event: "round", index: 0 });
  assert.deepEqual(reader.read(""), []);
  assert.deepEqual(
    reader.read(begin + round.slice(0, 5)).map((record) => record.event),
    ["begin"],
  );
  assert.deepEqual(
    reader.read(begin + round).map((record) => record.event),
    ["round"],
  );
  assert.deepEqual(reader.read(begin + round), []);
});

test("a value that is emptied and given again brings nothing new", () => {
  const reader = new LineReader();
  const race = line({ event: "begin", number: 1 }) + line({ event: "error", message: "old" });
  assert.equal(reader.read(race).length, 2);
  assert.deepEqual([...reader.read(""), ...reader.read(race)], []);
});

test("a part that overlaps what was read adds the rest only", () => {
  const reader = new LineReader();
  const rounds = [0, 1, 2].map((index) => line({ event: "round", index }));
  reader.read(line({ event: "begin", number: 1 }) + rounds[0]);
  const part = line({ event: "part", number: 1, from: 1 });
  assert.deepEqual(
    reader.read(part + rounds.join("")).map((record) => record.index),
    [1, 2],
  );
});

test("a part whose beginning was missed adds nothing, and the whole race makes up for it", () => {
  const reader = new LineReader();
  const begin = line({ event: "begin", number: 1 });
  const rounds = [0, 1, 2].map((index) => line({ event: "round", index }));
  reader.read(begin);
  assert.deepEqual(reader.read(line({ event: "part", number: 1, from: 3 }) + rounds[2]), []);
  assert.equal(reader.read(begin + rounds.join("")).length, 3);
});

test("another race begins anew", () => {
  const reader = new LineReader();
  reader.read(line({ event: "begin", number: 1 }) + line({ event: "round", index: 0 }));
  assert.equal(reader.read(line({ event: "begin", number: 2 })).length, 1);
});

const bytes = (text) => [...new TextEncoder().encode(text)];

test("a character that two tokens share appears with the second", () => {
  const [first, second] = [bytes("\u03b3").slice(0, 1), bytes("\u03b3").slice(1)];
  const text = new TokenText(new Map([[0, first], [1, second], [2, bytes("a")]])); // prettier-ignore
  assert.equal(text.push(0), "");
  assert.deepEqual(text.peek([1, 2]), ["\u03b3", "a"]);
  assert.equal(text.push(1), "\u03b3");
  assert.equal(text.push(2), "a");
});

test("a token without bytes adds nothing, and a peek leaves the text as it was", () => {
  const text = new TokenText(new Map([[1, bytes("x")]]));
  assert.equal(text.push(7), "");
  assert.deepEqual(text.peek([1, 1]), ["x", "x"]);
  assert.equal(text.push(1), "x");
});

test("the first tokens of a text may read otherwise there", () => {
  const text = new TokenText(new Map([[1, bytes(" x")], [2, bytes("y")]]), ["", "x"]); // prettier-ignore
  assert.deepEqual([2, 1, 1, 2].map((id) => text.push(id)), ["", "x", " x", "y"]); // prettier-ignore
  assert.deepEqual(text.peek([1]), [" x"]);
});

test("bytes travel as latin-1 characters", () => {
  assert.deepEqual(bytesOf("\u00ce\u00b3"), bytes("\u03b3"));
});
