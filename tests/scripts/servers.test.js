// Races on servers: guesses that were not told are shown as such, and no view says what no server told.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, click, key, mountHow, one, pass, race, show, state, textOf, texts, words } from "./page.js";
import { cardOf } from "../../specdec/ui/assets/share/card.js";
import { pack, unpack } from "../../specdec/ui/assets/share/packing.js";
import { Race, readRecording } from "../../specdec/ui/assets/race/race.js";

const records = race("servers"); // greedy: every round is told, some guesses are not
const pieces = race("pieces"); // of a server that tells text and speed only
const FORBIDDEN = /plain generate|our loop|generate\(\)|transformers|this machine|target pass over|draft model/i;
const opened = async (lines) => {
  state.open(textOf(lines), "gallery");
  if (state.replaying) click('[aria-label="Skip to the end"]');
  await pass();
};
const raceOf = (lines) => {
  const [begin, ...rest] = readRecording(textOf(lines));
  const found = new Race(begin);
  for (const record of rest) found.take(record);
  return found;
};

test("a server's race names servers, what each told, and where the times come from", async () => {
  await opened(records);
  assert.equal(words(".sd-headline"), records.at(-1).sentence);
  assert.deepEqual(texts(".sd-box h2"), ["Plain server", "Speculative server"]);
  assert.deepEqual(texts(".sd-boxServer"), Array(2).fill("tiny \u00b7 vLLM 0.32.0 \u00b7 It told each round."));
  assert.match(words(".sd-verdictOrigin"), /not measured here .* \d{4}/);
  assert.equal(all(".sd-again").length, 0, "the loaded pair cannot repeat it");
  assert.ok(!one(".sd-linePrompt b").hidden && one(".sd-lineForm").matches(".measures"));
  assert.match(words(".sd-stripFoot"), /round of the server.*A server tells no times of its passes/s);
  const facts = words(".sd-facts");
  for (const said of ["Plain server", "Speculative server", "It told each round.", "at the client"])
    assert.ok(facts.includes(said), said);
  assert.doesNotMatch(words(".sd-result"), FORBIDDEN);
  for (const hint of all("[title]").map((node) => node.title)) assert.doesNotMatch(hint, FORBIDDEN);
});

test("a guess that was not told is a question mark with a hint, in text and card", async () => {
  const untold = all(".sd-ribbon .untold");
  const rounds = records.filter(({ event, draft }) => event === "round" && draft);
  assert.equal(untold.length, rounds.flatMap(({ draft }) => draft).filter(({ token_id }) => token_id === null).length);
  assert.ok(untold.length > 2);
  for (const mark of untold)
    assert.deepEqual([mark.textContent, mark.title], ["?", "a guess that the server did not tell"]);
  const walked = () => {
    const ribbon = one(".sd-box.speculative .sd-ribbon");
    key(ribbon, "Home");
    return Array.from({ length: 60 }, () => {
      key(ribbon, "ArrowRight");
      return words(".sd-point");
    });
  };
  const hidden = walked();
  assert.ok(hidden.some((said) => /Correction.* in place of a guess that the server did not tell$/.test(said)));
  click("#sd-misses");
  const seen = walked();
  click("#sd-misses");
  assert.ok(seen.some((said) => /^\? .*Rejected.* a guess that the server did not tell$/.test(said)));
  assert.ok(![...hidden, ...seen].some((said) => said.includes("part of a character")));
  const cells = all(".sd-verdicts tbody tr").map((row) => [...row.cells].map((cell) => cell.textContent));
  const miss = cells.find((row) => row.at(-1) === "not kept");
  assert.equal(miss[1], "?");
  assert.notEqual(miss[2], "\u2013", "the correction is the target's choice");
  assert.match(words(".sd-steps"), /A server tells how many guesses it did not keep, not which \(\?\)/);
});

test("the strip draws no draft pass that was not timed", () => {
  const drawn = one(".sd-stripRow.speculative canvas").drawn;
  assert.ok(drawn.length);
  const high = drawn.filter(([, , , y]) => y === 0);
  assert.deepEqual([...new Set(high.map(([, colour]) => colour))], ["--sd-bar-verify"]);
});

test("How it works, Be the draft and the tree invent nothing", async () => {
  await mountHow();
  await pass(100);
  const how = words("#sd-how");
  assert.match(how, /The server drafted \w+ guesses\. It tells only those that it kept: \? is a guess/);
  assert.match(how, /A server does not tell how long its passes took\./);
  assert.match(how, /their engine decided by its own rule/);
  assert.match(how, /You are the server's draft now\./);
  assert.match(words(".sd-howTree"), /A server does not tell them, so none is drawn/);
  assert.equal(all(".sd-howStory .sd-howRow").length, 0, "no bar of a time that was not measured");
  assert.doesNotMatch(words(".sd-howHead"), /times/);
  const choices = texts(".sd-gameChoice");
  assert.ok(choices.length > 1 && !choices.includes("\u00b7"), choices.join());
});

test("another draft length is refused in a sentence, which does not send to the form", async () => {
  one("#sd-line-gamma").value = "3";
  one("#sd-line-gamma").dispatchEvent(new window.Event("input", { bubbles: true }));
  await pass(200);
  assert.match(words(".sd-status"), /A server tells no times of its passes.* cannot be computed\.$/);
});

test("a link keeps which guesses were not told", async () => {
  const found = raceOf(records);
  const lines = await unpack(await pack(found));
  const again = raceOf(lines.map((line) => ({ ...line, origin: "link" })));
  const ids = (of) =>
    [...of.lanes.values()].map(({ rounds }) =>
      rounds.map(({ draft }) => draft.map(({ token_id, status }) => [token_id === null, status])),
    );
  assert.deepEqual(ids(again), ids(found));
  const bytes = (of) =>
    of.lanes
      .get("speculative")
      .rounds.flatMap(({ committed_ids }) => committed_ids)
      .map((id) => of.bytes.get(id).join());
  assert.deepEqual(bytes(again), bytes(found));
  assert.deepEqual(again.lanes.get("speculative").server, found.lanes.get("speculative").server);
  await opened(lines.map((line, at) => (at ? line : { ...line, number: 7 })));
  assert.deepEqual(texts(".sd-box.speculative .untold"), Array(all(".sd-ribbon .untold").length).fill("?"));
});

test("the picture names servers", () => {
  const card = cardOf(raceOf(records), "http://127.0.0.1/");
  assert.deepEqual(
    card.lanes.map(({ label }) => label),
    ["Plain server", "Speculative server"],
  );
  assert.doesNotMatch(JSON.stringify(card), FORBIDDEN);
});

test("a server that tells text and speed only has pieces, not rounds", async () => {
  await opened(pieces);
  assert.match(words(".sd-boxServer"), /It told nothing of its rounds: text and speed only\..*no token ids/);
  assert.match(words(".sd-card h2"), /^Piece \d+ of/);
  assert.match(
    words(".sd-outcome + .sd-stepWords"),
    /in one piece of the answer; this server does not tell its rounds\./,
  );
  assert.equal(all(".sd-box .sd-token:is(.accepted, .correction, .bonus, .rejected)").length, 0);
  assert.match(one(".sd-stripRow.speculative [role=img]").getAttribute("aria-label"), /pieces of the answer/);
  assert.match(words("#sd-how .sd-howHead"), /made no guesses/);
  assert.doesNotMatch(words(".sd-result"), FORBIDDEN);
});

test("a race that this page ran on servers is measured from this machine", async () => {
  const [begin, ...rest] = structuredClone(records);
  await show(textOf([{ ...begin, origin: "servers", number: 4321 }, ...rest]));
  assert.match(words(".sd-verdictOrigin strong"), /^Measured from this machine, on running servers/);
});
