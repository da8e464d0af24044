// The axis of the strip of passes while lanes run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { lengthOf } from "../../specdec/ui/assets/race/strip.js";

const running = (tokens, duration) => ({ open: true, tokens, duration });
const ended = (duration) => ({ open: false, tokens: 64, duration });

test("a lane of an even speed grows on one axis, on which it ends", () => {
  const axes = new Set();
  let axis = 0;
  for (let tokens = 2; tokens <= 64; tokens++) axes.add((axis = lengthOf([running(tokens, tokens / 50)], 64, axis)));
  assert.equal(axes.size, 1);
  assert.ok(axis > 64 / 50 && axis < 2 * (64 / 50));
});

test("a lane that ended keeps its axis while a faster one runs", () => {
  const axes = [2, 20, 60].map((tokens) => lengthOf([ended(3.65), running(tokens, tokens / 300)], 64, 3.65));
  assert.deepEqual(axes, [3.65, 3.65, 3.65]);
  assert.ok(lengthOf([ended(3.65), running(20, 4)], 64, 3.65) > 4, "and not while a slower one does");
  assert.equal(lengthOf([ended(3.65), ended(0.2)], 64, 9), 3.65);
});
