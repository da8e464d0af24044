// The marks at the lines' ends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { signOf } from "../../specdec/ui/assets/race/chart.js";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";

test("a lane without a sign, or with one that cannot be drawn, ends in a circle", () => {
  defineLanes([
    { key: "loop", sign: "square" },
    { key: "toy", sign: null },
    { key: "other", sign: "toString" },
  ]);
  assert.deepEqual(["loop", "toy", "other", "unknown"].map(signOf), ["square", "circle", "circle", "circle"]);
});
