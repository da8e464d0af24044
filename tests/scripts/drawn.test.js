// What the page draws for the lines of a race: the recorded one, which is greedy and has three lanes.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  all,
  chart,
  click,
  drag,
  key,
  leave,
  one,
  pass,
  point,
  recorded,
  recordsOf,
  show,
  showRun,
  state,
  texts,
  words,
} from "./page.js";

await show(recorded());
const records = recordsOf(recorded());
const rounds = (lane) => {
  const from = records.findIndex((r) => r.event === "started" && r.lane === lane && (lane === "generate" || r.gamma));
  const to = records.findIndex((r, at) => at > from && r.event === "finished");
  return records.slice(from + 1, to);
};
const spoken = rounds("speculative");
const ours = ".sd-box.speculative";
const kinds = (selector = ours) => all(`${selector} .sd-token`).map((mark) => mark.classList[1]);

test("a recording is shown with its origin, its verdict and four figures", () => {
  const verdict = records.at(-1);
  assert.equal(state.verdicts, 1);
  assert.equal(state.origin, "recording");
  assert.match(words(".sd-verdictOrigin"), /^A recording, not measured here \u00b7 .+ \u00b7 \d+ \w+ \d{4}, /);
  assert.match(words(".sd-verdictOrigin .sd-together"), /^\d+ \w+ \d{4}$/, "no line ends inside the date");
  assert.equal(words(".sd-headline"), verdict.sentence.replace(/: [\d.]+x from our loop.*/, "."), "without the shares");
  assert.match(
    words(".sd-caption"),
    /^\u201cOnce upon a time, .+ \u2026\u201d \u00b7 \u03b3 5, 64 new tokens, greedy$/,
  );
  assert.deepEqual(
    texts(".sd-figures dd"),
    verdict.figures.map(({ value }) => value),
  );
  assert.deepEqual(texts(".sd-box h2"), ["Plain generate", "Speculative"]);
  assert.equal(all("details > .sd-ribbon").length, 1, "our loop's text is in a fold");
  assert.ok(one(".sd-chart .sd-plot").getAttribute("aria-label").includes(words(".sd-headline").slice(0, -1)));
  assert.ok(!one(".sd-linePrompt b").hidden, "the form is said to be that of the next run");
  assert.ok(!one(".sd-lineForm").matches(".measures"), "another length is computed from this one");
});

test("both texts are the same, and every token is drawn by what it is", () => {
  const written = (lane) =>
    all(`.sd-box.${lane} .sd-token:not(.rejected, .discarded)`)
      .map((mark) => mark.textContent)
      .join("");
  assert.equal(written("speculative"), written("generate"));
  const expected = spoken.flatMap((round) => {
    const kept = round.draft.filter(({ status }) => status === "accepted").map(() => "accepted");
    const missed = round.draft.slice(kept.length).map(({ status }) => status);
    return [...kept.slice(0, round.committed_ids.length), ...missed, ...(round.token_kind ? [round.token_kind] : [])];
  });
  assert.deepEqual([...kinds()].sort(), [...expected].sort());
  for (const kind of ["accepted", "correction", "bonus", "rejected", "discarded"])
    assert.ok(kinds().includes(kind), kind);
  assert.equal(all(`${ours} .sd-round`).length, spoken.length);
});

test("guesses that were not kept are shown when they are asked for", () => {
  const rejected = one(`${ours} .rejected`);
  assert.equal(rejected.offsetParent, null);
  click("#sd-misses");
  assert.notEqual(rejected.offsetParent, null);
  click("#sd-misses");
});

test("keys walk the tokens and the rounds, and each says what it is", () => {
  const ribbon = one(`${ours} .sd-ribbon`);
  assert.equal(ribbon.tabIndex, 0);
  key(ribbon, "Home");
  const seen = [];
  for (const name of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp", "End"]) {
    key(ribbon, name);
    seen.push(words(".sd-point"));
    assert.equal(all(".cursor").length, 1);
  }
  assert.equal(seen[3], seen[1], "up again from the second round");
  assert.equal(new Set(seen).size, 4);
  assert.ok(
    seen.every((said) => /\u201c.*\u201d · round \d+ · /s.test(said)),
    seen.join("\n"),
  );
  assert.match(seen.at(-1), new RegExp(`round ${spoken.length - 1} `));
  key(ribbon, "Home");
  key(ribbon, "ArrowDown");
  key(ribbon, "ArrowDown");
  key(ribbon, "Enter");
  assert.match(words(".sd-card h2"), /^Round 2 of/);
});

test("what is pointed at lights up everywhere", () => {
  const token = one(`${ours} .accepted`, 6);
  point(token);
  const lit = (lane) => words(`.sd-box.${lane} .lit`);
  assert.equal(one(".sd-legend").style.visibility, "hidden");
  assert.equal(lit("speculative"), token.textContent);
  assert.equal(lit("generate"), token.textContent);
  assert.equal(all(".sd-stripLit:not(.current):not([hidden])").length, 4);
  assert.deepEqual(
    all(".sd-verdicts tr.lit").map((row) => Number(row.dataset.row)),
    [token.detail.row],
  );
  assert.match(words(".sd-point"), /round \d+ · Accepted: guess kept/);
  leave(`${ours} .sd-ribbon`);
  assert.equal(all(".lit").length, 0);
  assert.ok(one(".sd-point").hidden && one(".sd-legend").style.visibility === "");
  point(one(".sd-verdicts tbody tr"));
  assert.equal(all(`${ours} .sd-token.lit`).length, 1);
  assert.equal(all(".sd-box.generate .lit").length, 1);
  leave(".sd-card");
});

test("a round is read step by step, as the record has it", () => {
  const number = spoken.findIndex((round) => round.token_kind === "correction" && round.draft.length > 2);
  click(all(`${ours} .sd-round`)[number].querySelector(".correction"));
  assert.equal(words(".sd-card h2"), `Round ${number} of ${spoken.length - 1}`);
  assert.equal(all(".sd-round.current .correction").length, 1);
  const names = { accepted: "kept", rejected: "not kept", discarded: "discarded" };
  assert.deepEqual(
    all(".sd-verdicts tbody tr").map((row) => row.cells[row.cells.length - 1].textContent),
    spoken[number].draft.map(({ status }) => names[status]),
  );
  const kept = spoken[number].draft.filter(({ status }) => status === "accepted").length;
  assert.match(words(".sd-step.outcome"), new RegExp(`${kept} guess(es)? kept, plus the correction`));
  assert.equal(all(".sd-decision li").length, 0, "greedy draws nothing");
  const [, guess, target] = all(".sd-verdicts tbody tr")[kept].cells;
  assert.notEqual(guess.textContent, target.textContent);
  click('.sd-card [aria-label="Next round"]');
  assert.match(words(".sd-card h2"), new RegExp(`^Round ${number + 1} of`));
  click('.sd-card [aria-label="Previous round"]');
  assert.match(words(".sd-card h2"), new RegExp(`^Round ${number} of`));
});

test("the strip is true to scale, and says what the time was spent on", () => {
  const ends = all(".sd-stripRow:not(.near) .sd-stripEnd").map((end) => [
    parseFloat(end.textContent),
    parseFloat(end.style.left) - 8,
  ]);
  assert.equal(ends.length, 3);
  for (const [seconds, pixels] of ends)
    assert.ok(Math.abs(pixels / ends[0][1] - seconds / ends[0][0]) < 0.01 / ends[0][0] + 0.01);
  for (const row of all(".sd-stripRow")) {
    const blocks = row.querySelector("canvas").drawn.filter(([, , , y]) => y === 0);
    const end = Math.max(...blocks.map(([, , x, , width]) => x + width));
    assert.ok(
      Math.abs(end + 8 - parseFloat(row.querySelector(".sd-stripEnd").style.left)) < 3,
      "at the last pass's end",
    );
  }
  const [plain, near] = [".generate", ".near"].map((row) => one(`.sd-stripRow${row} .sd-stripEnd`).style.left);
  assert.equal(near, plain, "the speculative lane, enlarged, is as wide as the longest one");
  const shares = [...words(".sd-stripWords").matchAll(/(\d+)\u00a0%/g)].map(([, share]) => Number(share));
  assert.equal(shares.length, 3, "drafting, checking and the rest");
  assert.ok(Math.abs(shares[0] + shares[1] + shares[2] - 100) <= 2);
  const cells = one(".sd-stripRow.near canvas").drawn.filter(([, , , y]) => y > 12);
  assert.equal(cells.length, spoken.slice(1).flatMap((round) => round.committed_ids).length, "a mark for each token");
});

test("the chart has a step line for each lane, and labels at the ends", async () => {
  await pass(200);
  const { lines, titles, labels, range } = chart();
  assert.deepEqual(lines.map(({ name }) => name).sort(), ["generate", "speculative", "speculative:0"]);
  for (const line of lines) assert.equal(line.y.at(-1), 64);
  assert.deepEqual(titles, ["Seconds after first token (each lane's own clock)", "Tokens written"]);
  assert.equal(Math.round(range[1]), 64);
  const said = labels.join(" ");
  assert.ok(said.includes("Plain") && said.includes("Speculative") && said.includes("saved"));
  // At the end of its line if there is room, else in the legend.
  const further = [...labels, ...texts(".sd-chartKey li")].filter((text) => text.startsWith("Our loop, no draft"));
  assert.deepEqual(
    further.map((text) => text.replace(/[\d.]+(?=\u00a0s)/, "#")),
    ["Our loop, no draft #\u00a0s"],
  );
});

test("why tells the engine from speculation, in steps that add up", async () => {
  assert.match(
    words(".sd-why summary"),
    /^Why [\d.]+x: a round yields [\d.]+ tokens( \(fewer at the end\))? in the time plain generate writes [\d.]+$/,
  );
  const why = records.at(-1).why;
  assert.match(words(".sd-why p"), /our loop without a draft/);
  assert.match(words(".sd-why .sd-facts"), /Cost coefficient \(c\)/);
  const label = one(".sd-why .sd-costs").getAttribute("aria-label");
  for (const [name] of why.steps) assert.ok(label.includes(name), name);
});

test("a figure tells its definition", () => {
  const name = all(".sd-figures .sd-term").find((term) => term.textContent === "tested guesses kept");
  const meaning = name.nextSibling;
  assert.ok(meaning.hidden);
  click(name);
  assert.ok(!meaning.hidden && meaning.textContent.includes("Guesses kept / guesses tested"));
  assert.equal(name.getAttribute("aria-expanded"), "true");
  click(name);
  assert.ok(meaning.hidden);
});

test("a dragged length is computed and labelled, and dragging back shows what was measured", async () => {
  const shown = () => [
    words(".sd-headline"),
    words(".sd-factor"),
    texts(".sd-figures dd"),
    words(".sd-stripWords"),
    kinds(),
  ];
  const before = shown();
  const measured = one(".sd-chart .sd-plot").getAttribute("aria-label");
  await drag(2);
  assert.match(words(".sd-verdictOrigin"), /Computed from .*, not measured/);
  assert.match(words(".sd-headline"), /^γ 2 would run at/);
  assert.ok(one(".sd-caption").hidden, "the caption names the measured length");
  assert.ok(all(`${ours}.computed`).length === 1 && kinds().join() !== before.at(-1).join());
  assert.match(one(".sd-chart .sd-plot").getAttribute("aria-label"), /γ 2 is computed/);
  const saved = chart().labels.filter((text) => /saved|lost/.test(text));
  assert.ok(saved.every((text) => text.includes("computed")));
  assert.match(words(".sd-replayWords"), /computed/);
  assert.match(words(".sd-spoken"), /γ 2 would run at/);
  state.loaded("another pair");
  assert.match(words(".sd-verdictOrigin"), /Computed from/);
  assert.equal(one("#sd-gamma input").value, "2", "Run measures it");
  await drag(5);
  assert.deepEqual(shown(), before);
  assert.equal(one(".sd-chart .sd-plot").getAttribute("aria-label"), measured);
  assert.doesNotMatch(words(".sd-replayWords"), /computed/);
  assert.match(words(".sd-verdictOrigin"), /Loaded now: another pair/);
});

test("a race that runs here replaces the greeting and says so", async () => {
  await showRun(records);
  assert.equal(state.verdicts, 2);
  assert.match(words(".sd-verdictOrigin"), /Measured on this machine · median of 3 runs/);
  assert.ok(one(".sd-linePrompt b").hidden, "the form is that of the shown race");
  await show(recorded());
  assert.match(words(".sd-verdictOrigin"), /on this machine/, "a later greeting is not shown");
});

test("a refusal is a sentence and leaves the last race alive", async () => {
  const before = words(".sd-verdict");
  const [begin] = records;
  click(".sd-lineForm .sd-action"); // the form is open when Run is pressed
  state.begin();
  assert.ok(!document.body.matches(".sd-editing"));
  await showRun([begin, { event: "error", message: "top_p is 2; give a number from 0 to 1." }]);
  assert.ok(!one("#sd-said .sd-error").hidden);
  assert.match(words("#sd-said .sd-error"), /top_p is 2/);
  assert.ok(document.body.matches(".sd-editing") && !state.running, "it shows the refused values");
  assert.equal(words(".sd-verdict"), before);
  const title = words(".sd-card h2");
  click(one(`${ours} .bonus`, 1));
  assert.notEqual(words(".sd-card h2"), title);
  click('[aria-label="Replay from the start"]');
  click('[aria-label="Pause"]');
  assert.match(words(".sd-box.generate .sd-boxStatus"), /^\d+ of \d+ tokens$/);
  click('[aria-label="Skip to the end"]');
});

test("the card says which way guessed, for a pair that drafts in more than one", async () => {
  const way = (words) => words.match(/Guessed by [^.]+\. /)?.[0] ?? "";
  assert.equal(way(words(".sd-card")), "");
  const told = structuredClone(records);
  const kinds = ["prompt-lookup", "model", "<b>dflash"];
  for (const round of told.filter(({ event, draft }) => event === "round" && draft?.length))
    round.drafted_by = kinds[round.index % 3];
  await showRun(told);
  const found = new Map();
  for (let number = 0; number < 4; number++) {
    const [, index] = words(".sd-card h2").match(/^Round (\d+)/);
    found.set(Number(index), way(words(".sd-card")));
    click('.sd-card [aria-label="Next round"]');
  }
  const said = ["Guessed by prompt lookup. ", "Guessed by the draft model. ", "Guessed by <b>dflash. "];
  for (const [index, sentence] of found) assert.equal(sentence, index ? said[index % 3] : "");
  assert.ok(found.size === 4);
});
