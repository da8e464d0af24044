// The marks at the lines' ends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { signOf } from "../../specdec/ui/assets/race/chart.js";
import { ticks } from "../../specdec/ui/assets/race/plot.js";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";

test("a lane without a sign, or with one that cannot be drawn, ends in a circle", () => {
  defineLanes([
    { key: "loop", sign: "square" },
    { key: "toy", sign: null },
    { key: "other", sign: "toString" },
  ]);
  assert.deepEqual(["loop", "toy", "other", "unknown"].map(signOf), ["square", "circle", "circle", "circle"]);
});

test("an axis has round marks from 0 to its end, and no more than fit", () => {
  assert.deepEqual(
    ticks(1.96, 6).map(([, text]) => text),
    ["0.0", "0.5", "1.0", "1.5"],
  );
  assert.deepEqual(
    ticks(64, 4).map(([, text]) => text),
    ["0", "20", "40", "60"],
  );
  for (const end of [1e-3, 0.013, 0.1, 0.3, 1, 2, 7.77, 64, 100, 2048]) {
    const marks = ticks(end, 4);
    assert.ok(marks.length >= 2 && marks.length <= 5 && marks.at(-1)[0] <= end * 1.001, `${end}: ${marks}`);
    assert.equal(new Set(marks.map(([, text]) => text)).size, marks.length, `${end}: two marks look alike`);
  }
});
