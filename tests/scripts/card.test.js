// What the picture of a race says and draws.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { cardOf, COLOURS, drawCard, METHOD, nameOf } from "../../specdec/ui/assets/share/card.js";
import { defineFigures } from "../../specdec/ui/assets/lib/definitions.js";
import { defineLanes } from "../../specdec/ui/assets/lib/lanes.js";
import { isCode } from "../../specdec/ui/assets/lib/sentences.js";
import { Race } from "../../specdec/ui/assets/race/race.js";
import { defineOrigins } from "../../specdec/ui/assets/lib/origins.js";
import { ORIGINS, TABLE, records } from "./recording.js";

defineLanes(TABLE);
defineOrigins(ORIGINS);
defineFigures({
  figures: { acceptance: { name: "guesses kept" }, same: { name: "tokens identical" } },
  ends: [": {engine}x from our loop, times {speculation}x from speculation."],
  shrunk: 1,
});

function race(origin = "run") {
  const all = records();
  const found = new Race({ ...all[0], origin });
  for (const record of all.slice(1)) found.take(record);
  Object.assign(found.verdict, {
    sentence: "Slower: it runs at 0.83x.",
    factor: "0.83x",
    about: true,
    caption: "\u03b3 1, 3 new tokens, greedy",
    figures: [
      { value: "50 %", name: "acceptance" },
      { value: "3 of 3", name: "same" },
    ],
  });
  return found;
}

test("the picture of a lossy race begins with that", () => {
  const lossy = race();
  lossy.verdict.warning = "Not lossless: it changes the output.";
  assert.equal(
    cardOf(lossy, "http://localhost").sentence,
    "Not lossless: it changes the output. Slower: it runs at 0.83x.",
  );
});

test("the picture has the figures of the page, and its origin in short words", () => {
  const card = cardOf(race(), "https://huggingface.co/spaces/some/specdec");
  assert.equal(card.sentence, "Slower: it runs at 0.83x.");
  assert.deepEqual(card.figures, [
    ["50 %", "guesses kept"],
    ["3 of 3", "tokens identical"],
  ]);
  assert.equal(card.factor, "about 0.83x");
  assert.match(card.pair, / \u00b7 \u03b3 1, 3 new tokens, greedy$/);
  assert.deepEqual(card.origin, ["Measured on some", "1 run", "1 January 1970"]);
  assert.deepEqual(cardOf(race("link"), "https://a.org/").origin.slice(0, 2), ["From a link", "recorded on some"]);
});

test("the picture names the prompt in one line that does not grow with it", () => {
  const of = (prompt) => {
    const found = race();
    found.begin.settings = { ...found.begin.settings, prompt };
    return cardOf(found, "https://a.org/").prompt;
  };
  assert.equal(of("Dear  Ms\nCarter"), "Dear Ms\u21b5 Carter");
  assert.ok(of("word ".repeat(1e5)).length <= 200);
  assert.equal(of(undefined), "");
});

test("the times of the picture give the speed-up that stands on it", () => {
  const found = race();
  Object.assign(found.verdict, { factor: "7.8x" });
  const [plain, ours] = ["generate", "speculative"].map((key) => found.lanes.get(key));
  for (const [lane, seconds] of [
    [plain, 0.6863],
    [ours, 0.0883],
  ])
    Object.defineProperty(lane, "duration", { value: seconds, configurable: true });
  const times = () => cardOf(found, "https://a.org/").lanes.map(({ time }) => time);
  assert.deepEqual(times(), ["686\u00a0ms", "88\u00a0ms"]);
  for (const [lane, seconds] of [
    [plain, 6.863],
    [ours, 0.883],
  ])
    Object.defineProperty(lane, "duration", { value: seconds });
  assert.deepEqual(times(), ["6.86\u00a0s", "0.88\u00a0s"], "one unit for all lanes");
});

test("the headline of the picture does not repeat the shares that stand below it", () => {
  const found = race();
  found.verdict.sentence = "It is 3.0 times as fast: 2.00x from our loop, times 1.50x from speculation.";
  const sentence = () => cardOf(found, "https://a.org/").sentence;
  assert.equal(sentence(), found.verdict.sentence, "no share stands there");
  found.verdict.figures = [
    { value: "2.00x", name: "engine" },
    { value: "1.50x", name: "measured" },
  ];
  assert.equal(sentence(), "It is 3.0 times as fast.");
  found.verdict.figures[0].value = "2.1x";
  assert.equal(sentence(), found.verdict.sentence, "other figures than those below");
});

test("indented lines and fences are code", () => {
  assert.ok(["def f():\n    return 1", "a\n\tb", "See:\n```\nx = 1\n```"].every(isCode));
  assert.ok(!["Once upon a time", "A list:\n- one\n- two", "", "  \n  \n"].some(isCode));
});

test("a bar holds every round after the first token, its passes within its time", () => {
  const { lanes } = cardOf(race(), "https://a.org/");
  assert.deepEqual(
    lanes.map(({ key, rounds }) => [key, rounds.length]),
    [
      ["generate", 2],
      ["speculative", 1],
    ],
  );
  const [round] = lanes[1].rounds;
  assert.deepEqual(round.kinds, ["accepted", "correction"]);
  assert.ok(round.draft + round.verify <= round.whole);
});

test("the speculative lane stands twice: to scale, and over the whole width with its tokens", () => {
  const boxes = [];
  const pen = {
    measureText: () => ({ width: 10 }),
    fillText() {},
    strokeRect() {},
    beginPath() {},
    moveTo() {},
    lineTo() {},
    fill() {},
    fillRect(left, top, wide, high) {
      boxes.push({ colour: this.fillStyle, left, top, right: left + wide, high });
    },
  };
  const card = cardOf(race(), "https://a.org/");
  card.lanes[0].duration = 4 * card.lanes[1].duration;
  drawCard({ getContext: () => pen }, card, "serif");
  const of = (name) => boxes.filter(({ colour, high }) => colour === COLOURS[name] && high === 22);
  const [small, large] = of("bar-verify");
  assert.ok(Math.abs((large.right - 280) / (small.right - 280) - 4) < 0.3 && large.top > small.top);
  const corrections = boxes.filter(({ colour, top }) => colour === COLOURS["correction-mark"] && top < 470);
  assert.deepEqual(
    corrections.map(({ top }) => top > large.top),
    [true],
  );
});

test("an uncertain picture says why, and still the method and the prompt, one below the other", () => {
  const written = [];
  const pen = new Proxy(
    { measureText: () => ({ width: 10 }), fillText: (...one) => written.push(one) },
    { get: (known, name) => known[name] ?? (() => {}), set: () => true },
  );
  const doubtful = race();
  doubtful.verdict.doubts = ["busy"];
  doubtful.verdict.notes = [{ kind: "busy", text: "The machine was busy. A lane waited." }];
  const settled = race();
  settled.verdict.about = false;
  for (const [shown, words] of [
    [doubtful, ["The machine was busy.", METHOD]],
    [settled, [METHOD]],
  ]) {
    written.length = 0;
    drawCard({ getContext: () => pen }, cardOf(shown, "https://a.org/"), "serif");
    const [head, foot] = [written.filter(([, , y]) => y < 200), written.filter(([, , y]) => y > 505)];
    assert.deepEqual([head.at(-1)[0], ...foot.slice(0, words.length - 1).map(([text]) => text)], words);
    assert.ok(foot.some(([text]) => text.startsWith("Prompt: ")));
    const lines = [...new Set(foot.map(([, , y]) => y))];
    assert.ok(lines.every((y, at) => y < 625 && (!at || y >= lines[at - 1] + 25)));
  }
});

test("the picture has the colours of the page", () => {
  const style = readFileSync(new URL("../../specdec/ui/assets/styles/colours.css", import.meta.url), "utf8");
  const light = style.slice(style.indexOf(":root"), style.indexOf(".dark"));
  for (const [name, colour] of Object.entries(COLOURS))
    assert.equal(light.match(`--sd-${name}: ([^;]*);`)?.[1], colour, name);
});

test("the figure has the colour that it has on the page", () => {
  const found = race();
  assert.equal(cardOf(found, "https://a.org/").look, "muted");
  Object.assign(found.verdict, { about: false, faster: true });
  assert.equal(cardOf(found, "https://a.org/").look, "blue");
  found.verdict.faster = false;
  assert.equal(cardOf(found, "https://a.org/").look, "ink");
});

test("an address that only this machine can open is not named", () => {
  for (const own of ["http://localhost:7860/", "http://127.0.0.1:7860/?a=1", "http://[::1]:7860/"])
    assert.equal(nameOf(own), "specdec");
  assert.equal(nameOf("https://lab.example.org/specdec/"), "lab.example.org/specdec");
});
