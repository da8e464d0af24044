// The tab How it works, as drawn: three steps with the tokens and times of the shown race, and the game Be the draft.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  all,
  click,
  mountHow,
  one,
  pass,
  race,
  recorded,
  recordsOf,
  reduceMotion,
  show,
  showRun,
  textOf,
  texts,
  words,
} from "./page.js";

const { raceShown } = await import("../../specdec/ui/assets/race/current_race.js"); // it needs the page
await mountHow();
const toggle = ".sd-howControls .sd-howButton";
const marks = (step) => [...all(".sd-howStep")[step].querySelectorAll(".sd-howLine:not(.ghost) [data-kind]")];
const kinds = (step) => marks(step).map((mark) => mark.dataset.kind);
const lane = () => raceShown().lanes.get("speculative");
const told = () => lane().rounds[Number(words(".sd-howLede").match(/Round (\d+) of/)[1])];
const trimmed = (pieces) => pieces.map((piece) => piece.trim() || piece);
const piecesOf = (ids) => ids.map((id) => new TextDecoder().decode(Uint8Array.from(raceShown().bytes.get(id) ?? [])));

test("before a race it asks for one", () => {
  assert.match(words(".sd-howLede"), /^Run a race on the Race tab first/);
});

test("a race whose speed is uncertain says why here too", async () => {
  const doubtful = recordsOf(recorded()).map((record) =>
    record.event === "verdict"
      ? {
          ...record,
          about: true,
          doubts: ["busy"],
          notes: [{ kind: "busy", text: "The machine was busy. It waited." }],
        }
      : record,
  );
  await show(textOf(doubtful));
  assert.match(words(".sd-howLede"), / called a median\. The machine was busy\.$/);
});

test("the steps play once in view, with the words and times of a round", async () => {
  await show(recorded());
  await pass(100);
  assert.equal(words(toggle), "Pause");
  assert.match(words(".sd-howLede"), /\. A recording, not measured here, in one of 3 runs\. /);
  const later = (step) => all(".sd-howStep")[step].querySelectorAll(".later").length;
  assert.deepEqual([later(0) > 0, later(1), later(2)], [true, 0, 0], "no step is empty but the one that plays");
  assert.ok(kinds(2).includes("accepted"), "a later step shows its end");
  let undecided = false; // until its own turn comes
  for (let at = 0; at < 80 && words(toggle) !== "Play again"; at++) {
    await pass(500, 100);
    undecided ||= kinds(2).includes("away");
  }
  assert.ok(undecided, "then it plays from its beginning");
  assert.equal(words(toggle), "Play again");
  const round = told();
  const guesses = trimmed(piecesOf(round.draft.map((token) => token.token_id)));
  for (const step of [0, 1]) {
    const guessed = marks(step).filter((mark) => mark.dataset.kind === "guessed");
    assert.deepEqual(
      guessed.map((mark) => mark.textContent),
      guesses,
    );
  }
  const milliseconds = texts(".sd-howStep:nth-child(1) .sd-howValue").map(parseFloat);
  assert.ok(Math.abs(milliseconds[0] - 1000 * round.draft_seconds) <= 0.5);
  const [one_, check] = texts(".sd-howStep:nth-child(2) .sd-howValue").map(parseFloat);
  const widths = all(".sd-howStep:nth-child(2) .sd-howFill").map((bar) => parseFloat(bar.style.width));
  assert.ok(Math.abs(widths[1] / widths[0] - check / one_) < 0.06 * (check / one_));
  const said = words(".sd-howStep:nth-child(2) .sd-howWords").match(/took ([\d.]+) times as long/);
  assert.equal((check / one_).toFixed(1), said[1], "a reader who divides finds the ratio");
});

test("the third step shows the outcome of the round", () => {
  const status = told().draft.map((token) => token.status);
  assert.ok(status.includes("accepted") && status.includes("rejected"));
  const at = status.indexOf("rejected") + 1;
  assert.deepEqual(kinds(2), ["sd-last", ...status.slice(0, at), told().token_kind, ...status.slice(at)]);
});

test("the parts of the third step's bars are named", () => {
  const [round, alone] = [...all(".sd-howStep")[2].querySelectorAll(".sd-howRow")];
  const names = (row) => [...row.querySelectorAll(".sd-howKey > span")].map((part) => part.textContent);
  assert.deepEqual(names(round), ["drafting", "checking", "other work"]);
  assert.match(alone.textContent, /^\w+ tokens?, one by one without guesses/);
});

test("with reduced motion the finished pictures are there at once, and each press is a step", async () => {
  reduceMotion(true);
  await showRun(recordsOf(recorded()));
  await pass();
  const visible = () => all(".sd-howStep").map((step) => !step.querySelector(".sd-howValue").matches(".later"));
  assert.deepEqual(visible(), [true, true, true]);
  assert.doesNotMatch(words(".sd-howControls"), /slower/);
  click(toggle);
  assert.deepEqual(visible(), [true, false, false]);
  click('[aria-label="Next step"]');
  assert.deepEqual(visible(), [true, true, false]);
  click('[aria-label="Previous step"]');
  assert.deepEqual(visible(), [true, false, false]);
  reduceMotion(false);
});

test("the mean of the Race tab is told apart from the ratio of like passes", async () => {
  const note = () => words(".sd-howStep:nth-child(2) .sd-howNote");
  const growing = (value) => {
    const lines = recordsOf(recorded());
    lines.at(-1).why.figures = [{ name: "verify growth", value }];
    return lines;
  };
  await showRun(growing("9.87"));
  assert.match(note(), /On the Race tab this is 9\.87, the mean over all rounds, shorter and slower ones too\./);
  const [, ratio] = words(".sd-howStep:nth-child(2) .sd-howWords").match(/took ([\d.]+) times as long/);
  await showRun(growing(`${ratio}0`));
  assert.doesNotMatch(note(), /Race tab/);
  await showRun(growing("0.78"));
  assert.doesNotMatch(note(), /Race tab/, "noise is not compared");
  await showRun(recordsOf(recorded()));
});

test("another race brings its own words, and one without guesses is said to have none", async () => {
  await showRun(race("loop"));
  assert.match(words("#sd-how"), /made no guesses/);
  assert.ok(one(".sd-howParts").hidden);
  await showRun(race("greedy"));
  assert.match(words(".sd-howLede"), /\. Measured on this machine, 1 run\. /);
  assert.ok(!one(".sd-howParts").hidden);
  await showRun(race("block"));
  assert.match(words("#sd-how"), /judged each draft as a block/);
  const others = race("greedy");
  for (const record of others) if (record.event === "started") record.acceptance = "cautious";
  await showRun(others);
  assert.match(words("#sd-how"), /acceptance rule of another package/);
  await showRun(recordsOf(recorded()));
});

// The tokens that the target wrote after the text that the game shows.
function rightTokens() {
  const { started, rounds } = lane();
  const shown = words(".sd-gameText .sd-howContext").replace(/^\u2026/, "");
  const written = rounds.flatMap((round) => round.committed_ids);
  const at = written.findIndex((_, place) => {
    const before = piecesOf([...started.prompt_ids, ...written.slice(0, place)]).join("");
    return place && before.endsWith(shown);
  });
  return written.slice(at);
}

function choose(tokens) {
  const length = all(".sd-gameSlot").length;
  for (const token of tokens.slice(0, length)) click(`.sd-gameChoice[data-token="${token}"]`);
  return length;
}

test("a wrong guess is struck and replaced, and later guesses are discarded", () => {
  const truth = rightTokens();
  const length = all(".sd-gameSlot").length;
  click(all(".sd-gameChoice").find((choice) => choice.dataset.token !== String(truth[0])));
  for (const token of truth.slice(1, length)) click(`.sd-gameChoice[data-token="${token}"]`);
  click(".sd-gameNext .strong");
  assert.deepEqual(
    all(".sd-gameText [data-kind]").map((mark) => mark.dataset.kind),
    ["rejected", "correction", ...Array(length - 1).fill("discarded")],
  );
  assert.match(words(".sd-gameSaid"), new RegExp(`You: 0 of ${length} kept\\.`));
  assert.match(words(".sd-gameSaid"), /wrote one token with one target pass/);
  assert.equal(one(".sd-gameSaid").getAttribute("aria-live"), "polite");
  assert.match(words(".sd-gameBoard"), new RegExp(`0 of ${length}`));
  click(".sd-gameNext .strong");
  assert.match(words(".sd-gameLabel"), /^Round 2 of/);
});

test("the game is won with the tokens of the target, and its result is remembered", async () => {
  await showRun(recordsOf(recorded()));
  const rounds = Number(words(".sd-gameLabel").match(/Round 1 of (\d+)/)[1]);
  assert.ok(rounds >= 3);
  let total = 0;
  for (let at = 0; at < rounds; at++) {
    const length = choose(rightTokens());
    total += length;
    assert.equal(document.activeElement.textContent, "Check my guesses");
    click(document.activeElement);
    assert.equal(all(".sd-gameText .accepted").length, length);
    assert.equal(all(".sd-gameText .bonus").length, 1);
    assert.match(words(".sd-gameSaid"), new RegExp(`You: ${length} of ${length} kept\\. The draft model: `));
    assert.equal(document.activeElement.textContent, at + 1 === rounds ? "See the result" : "Next round");
    click(document.activeElement);
  }
  const end = words(".sd-gameSaid");
  assert.ok(end.includes(`You kept ${total} of ${total} guesses`) && end.includes(`wrote ${total + rounds} tokens`));
  await showRun(recordsOf(recorded()));
  assert.equal(words(".sd-gameSaid"), end, "a later race shows the result of the last game");
  click(".sd-gameNext .sd-howButton");
  assert.ok(all(".sd-gameChoice").length >= 2);
});

test("a skipped game stays skipped, and needs no storage", async () => {
  click(".sd-gameNext .quiet");
  assert.equal(words(".sd-gameSaid"), "You skipped this game.");
  await showRun(recordsOf(recorded()));
  assert.equal(words(".sd-gameSaid"), "You skipped this game.");
  const { prototype } = window.Storage;
  const [get, set] = [prototype.getItem, prototype.setItem];
  prototype.getItem = prototype.setItem = () => {
    throw new Error("forbidden");
  };
  await showRun(recordsOf(recorded()));
  assert.ok(all(".sd-gameChoice").length >= 2, "each time anew");
  click(".sd-gameNext .quiet");
  assert.equal(words(".sd-gameSaid"), "You skipped this game.");
  Object.assign(prototype, { getItem: get, setItem: set });
});

test("a tree of guesses says what a second branch would have kept, and who sees whom", async () => {
  await show(recorded());
  const lane_ = lane();
  const misses = lane_.rounds.filter((round) => round.draft?.some((token) => token.status === "rejected"));
  const second = misses.filter((round) => {
    const guess = round.draft.find((token) => token.status === "rejected").token_id;
    return round.decision.q.map(([id]) => id).filter((id) => id !== guess)[0] === round.token_id;
  });
  assert.ok(second.length > 0 && second.length < misses.length, "the recorded race has both");
  const said = words(".sd-howTree");
  assert.match(said, new RegExp(`a guess was rejected. In ${second.length} of them`));
  assert.match(said, /specdec does not do this/);
  const rows = [...all(".sd-treeMask tbody tr")].map((row) => [...row.querySelectorAll("td")].map((c) => c.className));
  const last = rows.length - 1;
  rows.forEach((row, at) =>
    row.forEach((seen, column) => {
      const other = at === last && column === last - 1; // the other branch
      assert.equal(seen === "sees", column <= at && !other, `row ${at}, column ${column}`);
    }),
  );
});
