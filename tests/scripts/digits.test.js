// Figures beside their ratio have digits enough for a reader who divides them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { placesTogether, ratiosOf } from "../../specdec/ui/assets/lib/digits.js";

const divided = (values, places, above, below) =>
  Number(values[above].toFixed(places)) / Number(values[below].toFixed(places));

test("speeds of a race give its speed-up and both shares", () => {
  const speeds = [17.311943742762242, 39.489276393059235, 130.14554634956949]; // of the recorded letter
  const places = placesTogether(speeds, ratiosOf(3, "7.5x"));
  assert.equal(places, 2); // 130 / 39 is 3.33, and 130.1 / 39.5 is 3.29
  assert.equal(divided(speeds, places, 2, 0).toFixed(1), "7.5");
  assert.equal(divided(speeds, places, 1, 0).toFixed(2), "2.28");
  assert.equal(divided(speeds, places, 2, 1).toFixed(2), "3.30");
});

test("figures that already give it get no more digits, and one lane has no ratio", () => {
  assert.equal(placesTogether([131.146, 314.389], ratiosOf(2, "2.4x")), 0);
  assert.deepEqual(ratiosOf(3, "17x", true), [], "an uncertain ratio asks for no further digit");
  assert.equal(placesTogether([0.5], ratiosOf(1, null), 2), 2);
  assert.equal(placesTogether([], ratiosOf(0, null), 2), 2);
  assert.ok(placesTogether([0, 0.0001], ratiosOf(2, "12x")) <= 5, "no time at all has no ratio");
});
