// What the page draws for other races: sampled, judged as a block, lossy, with all lanes, stopped, repeated.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, chart, click, drag, one, pass, race, send, show, showRun, state, texts, textOf, words } from "./page.js";

const greeting = race("greedy");
await show(textOf([{ ...greeting[0], origin: "startup" }, ...greeting.slice(1)]));
const rowsOf = () => all(".sd-verdicts tbody tr").map((row) => [...row.cells].map((cell) => cell.textContent));
const lines = () => chart().lines;

test("a race that was measured at start-up says so", () => {
  assert.match(words(".sd-verdictOrigin"), /^Measured on this machine at start-up \u00b7 1 run \u00b7 /);
});

test("a sampled round shows its draws, and a correction its residual", async () => {
  await showRun(race("sampled"));
  const notes = words(".sd-verdictWords");
  assert.match(notes, /Sampling: the two texts may differ; their distribution is the same\./);
  click(".sd-box.speculative .correction");
  const tested = rowsOf().filter((row) => row.at(-1) !== "discarded");
  assert.ok(tested.length > 0);
  for (const row of tested) {
    const [q, p, accept, draw] = row.slice(-5, -1).map(Number);
    assert.ok(Math.abs(accept - Math.min(1, p / q)) < 0.02 * accept + 1e-9, row.join(" "));
    assert.equal(draw <= accept + 0.001, row.at(-1) === "kept");
  }
  assert.match(words(".sd-card .sd-barKeys"), /residual/);
  assert.match(words(".sd-card"), /drawn from the residual/);
});

test("a sampled run says why no other length is computed", async () => {
  const before = words(".sd-headline");
  await drag(3);
  assert.match(words(".sd-status"), /sampled/);
  assert.equal(words(".sd-headline"), before);
});

test("a block's table names its tests, and nothing in it is unchecked", async () => {
  await showRun(race("block"));
  click(".sd-box.speculative .correction");
  assert.ok(texts(".sd-verdicts th").includes("Block test"));
  assert.ok(rowsOf().every((row) => ["kept", "not kept"].includes(row.at(-1))));
});

test("lossy acceptance is a plain warning", async () => {
  await showRun(race("lossy"));
  assert.equal(words(".sd-warning"), "Not lossless: top-k acceptance changes the output.");
  assert.ok(!one(".sd-warning").hidden);
  await showRun(race("greedy"));
  assert.ok(one(".sd-warning").hidden);
});

test("further lanes have a text, a row and a name each, and signs of their own", async () => {
  await showRun(race("lanes"));
  await pass(200);
  const names = ["Our loop, no draft", "transformers assisted", "Prompt lookup", "transformers lookup", "Draft alone"];
  assert.equal(all(".sd-stripRow:not(.near)").length, 7);
  assert.deepEqual(
    texts("details > summary")
      .filter((name) => name.endsWith(" text"))
      .sort(),
    names.map((n) => `${n} text`).sort(),
  );
  const written = all(".sd-ribbon").map((ribbon) =>
    [...ribbon.querySelectorAll(".sd-token:not(.rejected, .discarded)")].map((mark) => mark.textContent).join(""),
  );
  const alone = written.splice(
    all(".sd-ribbon").findIndex((node) => node.getAttribute("aria-label").startsWith("Draft alone")),
    1,
  );
  assert.equal(new Set(written).size, 1, "all write the target's text");
  assert.notEqual(alone[0], written[0], "but the draft alone");
  const rows = all(".sd-more table")[0].querySelectorAll("tbody tr");
  assert.ok(rows.length === 7 && [...rows].slice(1).every((row) => row.textContent.includes("x")));
  assert.equal(lines().length, 7);
  assert.equal(new Set(chart().shapes).size, 4, "two lanes of transformers point up and down");
  assert.ok(
    names.every((name) => texts(".sd-chartKey li").some((text) => text.startsWith(name) && text.endsWith("s"))),
  );
});

test("a grammar is in the caption, and its forced tokens are told as such", async () => {
  await showRun(race("grammar"));
  await pass(200);
  assert.match(words(".sd-caption"), /greedy, a JSON schema$/);
  assert.match(words(".sd-verdictWords"), /The grammar forced \d+ of the \d+ kept guesses/);
  assert.ok(texts("details > summary").includes("Draft without grammar text"));
  const forced = race("grammar").find(({ drafted_by: way }) => way === "grammar");
  one(".sd-cardHead input").value = String(forced.index);
  send(".sd-cardHead input", "input");
  assert.match(words(".sd-card"), /Forced by the grammar, at no cost/);
  assert.equal(all(".sd-live b, .sd-card b").filter((node) => node.textContent === "cats").length, 0);
});

test("a text that ends early fills the chart", async () => {
  await showRun(race("ended"));
  await pass(200);
  const written = Number(texts(".sd-figures dd").at(-1).split(" ")[0]);
  assert.ok(written < 100);
  assert.equal(Math.round(chart().range[1]), written);
  assert.equal(words(".sd-box.generate .sd-boxStatus").includes("of 100"), false);
});

test("a repeated race shows a median and a spread", async () => {
  await showRun(race("repeated"));
  assert.match(words(".sd-verdictOrigin"), /^Measured on this machine \u00b7 median of 5 runs/);
  assert.match(words(".sd-headline"), /median of 5/);
  assert.equal(texts(".sd-figures dd").at(-1), "12 of 12");
  const row = all(".sd-more tbody tr")[1].textContent;
  const [, low, high] = row.match(/\(([\d.]+)x?–([\d.]+)x?\)/).map(Number);
  assert.ok(low <= high, row);
  // The texts are those of the run that the verdict names.
  const records = race("repeated");
  const starts = records.flatMap(({ event, lane, gamma }, at) =>
    event === "started" && lane === "speculative" && gamma ? [at] : [],
  );
  const shown = records.slice(starts[records.at(-1).shown]);
  const rounds = shown.slice(
    1,
    shown.findIndex(({ event }) => event === "finished"),
  );
  assert.equal(all(".sd-box.speculative .sd-round").length, rounds.length);
  await pass(200);
  const line = lines().find(({ name }) => name === "speculative");
  assert.ok(
    Math.abs(line.x.at(-1) - (rounds.at(-1).elapsed_seconds - rounds[0].elapsed_seconds)) < 1e-3 * chart().range[0],
  );
});

test("a stopped race is drawn as far as it is compared", async () => {
  await showRun(race("stopped"));
  await pass(200);
  const written = Number(words(".sd-verdictWords").match(/Stopped at (\d+) of 100/)[1]);
  assert.ok(written < 100);
  assert.equal(Math.round(chart().range[1]), written);
  assert.deepEqual(
    lines().map(({ y }) => y.at(-1)),
    [written, written],
  );
  assert.match(words(".sd-box.generate .sd-boxStatus"), /^\d+ tokens in/);
  assert.ok(texts(".sd-waiting").includes("This lane did not run."));
});

test("a race without guesses has no rejected token and says what it is", async () => {
  await showRun(race("loop"));
  assert.match(words(".sd-headline"), /γ 0 makes no guesses/);
  assert.equal(all(".sd-box.speculative :is(.accepted, .rejected)").length, 0);
});

test("markup in a prompt stays text", async () => {
  await showRun(race("hostile"));
  assert.equal(words(".sd-promptText"), race("hostile")[0].settings.prompt);
  assert.equal(all(".sd-ribbon script, .sd-ribbon img, .sd-card img").length, 0);
  assert.equal(globalThis.bitten, undefined);
});

test("a strip that grew pass by pass looks like one drawn at once", async () => {
  const records = race("greedy");
  const end = records.findLastIndex((r) => r.event === "round");
  const begin = { ...records[0], origin: "run", number: 5000 };
  const rest = records.slice(1, end + 1);
  for (let at = 4; at < rest.length; at += 3) await show(textOf([begin, ...rest.slice(0, at)]), true);
  await show(textOf([begin, ...rest]), true);
  const drawn = () => all(".sd-strip canvas").map((canvas) => JSON.stringify(canvas.drawn));
  const grown = drawn();
  document.body.classList.add("another-look"); // every drawing follows the theme, which is a class there
  await pass(100);
  assert.ok(grown.every((one) => one.length > 100));
  assert.deepEqual(drawn(), grown);
});

test("Stop is confirmed where its race is: above the result until a lane has begun, then in its headline", async () => {
  await showRun(race("greedy"));
  const [begin, started, ...rest] = race("greedy");
  const failed = rest.slice(0, 3);
  const error = { event: "error", message: "The race failed." };
  await showRun([begin, started, ...failed, error]); // in its first lane, so that there is no verdict
  state.begin();
  state.halt();
  assert.equal(words(".sd-headline"), "The race did not end.");
  assert.equal(words(".sd-status"), "Stopping …");
  assert.ok(!one(".sd-status").hidden);
  state.end("Cancelled. Nothing ran.");
  assert.equal(words(".sd-headline"), "The race did not end.");
  state.begin();
  await showRun([begin]); // it warms up
  state.halt();
  assert.equal(words(".sd-status"), "Stopping …");
  assert.ok(!one(".sd-status").hidden);
  state.end();
  state.begin();
  await showRun([begin, started, ...failed]);
  state.halt();
  assert.equal(words(".sd-headline"), "Stopping …");
  state.end();
  await showRun(race("greedy"));
});

test("a race stopped in its first lane says so and keeps its text", async () => {
  await showRun(race("early"));
  assert.match(words(".sd-headline"), /^Stopped at \d+ of 100 tokens in the plain lane\.$/);
  assert.match(words(".sd-verdictOrigin"), /^Measured on this machine \u00b7 1 run/);
  assert.ok(all(".sd-box.generate .sd-token").length > 5);
  state.loaded("another pair");
  assert.match(words(".sd-verdictOrigin"), /Loaded now: another pair/);
});
