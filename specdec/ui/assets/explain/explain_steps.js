// The three steps of a round: what each shows at a moment from 0 (not begun) to 1 (done).
import { isShrunk } from "../lib/definitions.js";
import { el } from "../lib/dom.js";
import { UNTOLD, UNTOLD_WORDS } from "../race/lines.js";
import {
  counted,
  inWords,
  keptOf,
  milliseconds,
  placesBeside,
  ratioInWords,
  sameRatio,
  sentence,
  shown,
  sum,
  tellingRound,
  timesOf,
  wordsOf,
} from "./explain_data.js";

const PACES = [5000, 2000, 1000, 500, 200, 100, 50, 20, 10, 5, 2, 1];
const LASTS = 6; // seconds that the first two steps may take together
const UNTIMED = 2; // seconds of a step whose time is not known
const TURN = 0.5; // seconds in which a guess gets its verdict
const PARTS = { draft: "drafting", verify: "checking", rest: "other work" }; // of a bar
const SLOW = 1.5; // times the median: a pass that took so long is told of, because the sum is not what one expects
const GROWS = 1.2; // seconds in which the last bars grow

// What the steps need of a race; null if its lane made no guess.
export function storyOf(race) {
  const lane = race.lanes.get("speculative");
  const round = lane && tellingRound(race, lane);
  if (!round) return null;
  const times = timesOf(race.lanes, lane, round);
  const { draft, check, one } = times;
  const played = draft === null || check === null ? null : draft + Math.max(check, one ?? 0);
  return {
    round,
    lane,
    times,
    words: wordsOf(race, lane, round),
    guesses: counted(round.draft.length, "guess", "guesses"),
    positions: counted(round.draft.length + 1, "position"),
    model: (lane.started.pair?.draft?.kind ?? "model") === "model",
    server: lane.server,
    untold: round.draft.map(({ token_id }) => token_id === null),
    longest: Math.max(draft ?? 0, check ?? 0, one ?? 0, times.round ?? 0, sum(times.alone ?? [])),
    growth: growthOf(race),
    pace: played && (PACES.find((pace) => played * pace <= LASTS) ?? 1),
  };
}

// The verify growth of the Race tab: the mean over all rounds of the lane, shorter ones too. Null if it is not known.
function growthOf({ verdict }) {
  const figure = verdict?.why?.figures?.find(({ name }) => name === "verify growth");
  return Number(figure?.value) || null;
}

export const actsOf = (story) => [running(story), checking(story), settling(story)];

// 1: the guesses appear one after another, in their measured times.
function running(story) {
  const { words, times, guesses, pace } = story;
  const { node, marks } = lineOf(story);
  const rows = times.draft === null ? [] : [new Row(story, guesses, [["draft", times.draft]])];
  const took = times.draft === null ? "" : ` in ${milliseconds(times.draft)}`;
  return {
    title: story.model ? "The draft model guesses" : "The draft guesses",
    caption: story.server
      ? `The server drafted ${guesses}.${story.untold.includes(true) ? ` It tells only those that it kept: ${UNTOLD} is ${UNTOLD_WORDS}.` : ""}`
      : story.model
        ? `The draft model is small and fast. It wrote ${guesses}, one after the other,${took}.`
        : `The draft needs no second model. It found ${guesses}${took}.`,
    spoken: `The guesses: ${marks.map((mark) => mark.textContent).join(", ")}.`,
    lines: [node],
    rows,
    seconds: pace ? times.draft * pace : UNTIMED,
    show(done) {
      const there = Math.floor(done * marks.length);
      marks.forEach((mark, at) => mark.classList.toggle("later", at >= there));
      for (const row of rows) row.grow(done * times.draft);
    },
  };
}

// 2: one pass over all positions, beside a pass over one position, on the same clock.
function checking(story) {
  const { round, times, guesses, positions, pace } = story;
  const { node, last, marks } = lineOf(story);
  const read = last ? [last, ...marks] : marks;
  for (const mark of read) mark.classList.add("read");
  const both = times.one !== null && times.check !== null;
  const places = both ? placesBeside(times.check, times.one) : undefined;
  const usual = both ? ", median" : ""; // the times of the other steps are this round's
  const rows = [];
  if (times.one !== null && !times.onServer)
    rows.push(new Row(story, `one position in one pass${usual}`, [["one", times.one]], { squares: 1, places }));
  if (times.check !== null) {
    const squares = round.draft.length + 1;
    rows.push(new Row(story, `${positions} in one pass${usual}`, [["verify", times.check]], { squares, places }));
  }
  const longest = Math.max(...rows.map((row) => row.total), 0);
  // Reading more cannot be less work, so a ratio below 1 says nothing about the method.
  const cause = times.oneIsLoop
    ? " Other work on the machine slowed the shorter pass down. Repeat the race."
    : " Plain generate spends more time outside its passes than our loop, which did not run in this race.";
  const doubt = both && isShrunk(times.check / times.one) ? cause : "";
  const plain = times.oneIsLoop ? "without a draft" : "of plain generate";
  const { growth } = story;
  const other =
    both && !doubt && growth && !isShrunk(growth) && !sameRatio(growth, times.check / times.one)
      ? ` On the Race tab this is ${growth}, the mean over all rounds, shorter and slower ones too.`
      : "";
  return {
    title: "One target pass checks all guesses",
    caption:
      `The target reads the last token and ${guesses} in one pass.` +
      (both && !doubt ? ` Checking ${positions} took ${ratioInWords(times.check / times.one)} writing one token.` : ""),
    note: times.onServer
      ? "A server does not tell how long its passes took."
      : both
        ? `Medians of ${times.checks} passes over ${positions} and of ${times.ones} over one, ${plain}.${other}${doubt}`
        : "",
    lines: [node],
    rows,
    seconds: pace ? longest * pace : UNTIMED,
    show(done) {
      const now = done * longest;
      const share = times.check === null ? done : Math.min(1, now / times.check);
      for (const mark of read) mark.style.setProperty("--read", String(share));
      for (const row of rows) row.grow(now);
    },
  };
}

// 3: which guesses were kept, replaced or discarded; then the time of the round, and what it saved.
function settling(story) {
  const { round, times } = story;
  const kept = keptOf(round);
  const { node, turns } = outcomeOf(story, kept);
  const { node: ghost } = outcomeOf(story, kept, true); // keeps room for the finished text
  ghost.classList.add("ghost");
  const last = Math.max(...turns.map(({ turn }) => turn));
  const count = round.committed_ids.length;
  const rows = [];
  if (times.round !== null) {
    const rest = Math.max(0, times.round - (times.draft ?? 0) - (times.verify ?? 0));
    const parts = { draft: times.draft ?? 0, verify: times.verify ?? 0, rest };
    rows.push(new Row(story, `this round: ${counted(count, "token")}`, Object.entries(parts)).withKey());
    if (times.alone)
      rows.push(
        new Row(
          story,
          `${counted(count, "token")}, one by one without guesses`,
          times.alone.map((seconds) => ["one", seconds]),
        ),
      );
  }
  const seconds = last * TURN + (rows.length ? GROWS : 0);
  return {
    title: "The kept guesses become text",
    caption: captionOf(round, kept) + worthOf(times, count),
    spoken: `The result: ${spokenOf(story, kept)}.`,
    lines: [node, ghost],
    rows,
    seconds,
    show(done) {
      const turn = Math.floor((done * seconds) / TURN + 1e-9);
      for (const { mark, kind, turn: its } of turns)
        dress(mark, turn >= its ? kind : kind === round.token_kind ? "away" : "guessed");
      const grown = seconds > last * TURN ? Math.max(0, (done * seconds - last * TURN) / GROWS) : 0;
      for (const row of rows) row.grow(grown * Math.max(...rows.map((other) => other.total)));
    },
  };
}

// The text with the round's outcome, and the turn in which each token gets it. The correction comes at the first
// rejected guess, before the discarded guesses.
function outcomeOf(story, kept, finished = false) {
  const { round, words } = story;
  const { node, marks } = lineOf(story);
  const turns = round.draft.map(({ status }, at) => ({
    mark: marks[at],
    kind: status,
    turn: status === "discarded" ? kept + 3 : at + 1,
  }));
  if (words.added !== null) {
    const mark = chip(words.added);
    const miss = marks[kept];
    const place = el("span", "sd-howAdded", "", spaced(mark));
    if (miss) miss.after(place);
    else node.append(place);
    turns.push({ mark, kind: round.token_kind, turn: miss ? kept + 2 : kept + 1 });
  }
  if (finished) for (const { mark, kind } of turns) dress(mark, kind);
  return { node, turns };
}

function captionOf(round, kept) {
  const count = round.draft.length;
  if (kept === count) {
    const more = round.token_id === null ? "" : " The target also adds its own next token.";
    return `The target agrees with ${count === 1 ? "the guess" : `all ${inWords(count)} guesses`}.${more}`;
  }
  const stand = sentence(`${counted(kept, "guess", "guesses")} ${kept === 1 ? "is" : "are"} kept.`);
  const behind = kept + 1 < count ? " What was guessed after it continues a wrong word and is discarded." : "";
  return `${stand} The first rejected guess is struck out, and the target's own token replaces it.${behind}`;
}

function worthOf(times, count) {
  if (times.round === null || !times.alone) return "";
  const [tokens, them] = [counted(count, "token"), count === 1 ? "it" : "them"];
  const plain = times.oneIsLoop ? "our loop" : "plain generate";
  const longest = Math.max(...times.alone);
  const uneven = count > 1 && times.one !== null && longest > SLOW * times.one;
  const slowest = uneven ? `, ${milliseconds(longest)} of that for the slowest` : "";
  const lost = times.round < sum(times.alone) ? "" : " So this round saved no time.";
  const alone = `Without guesses, ${plain} took ${milliseconds(sum(times.alone))} for ${them}${slowest}.${lost}`;
  return ` The round wrote ${tokens} in ${milliseconds(times.round)}. ${alone}`;
}

function spokenOf({ round, words }, kept) {
  const names = words.guesses.map(shown);
  const parts = [`kept ${names.slice(0, kept).join(", ") || "none"}`];
  if (kept < names.length) parts.push(`not kept ${names[kept]}`);
  if (words.added !== null)
    parts.push(`${round.token_kind === "bonus" ? "added" : "replaced by"} ${shown(words.added)}`);
  if (kept + 1 < names.length) parts.push(`discarded ${names.slice(kept + 1).join(", ")}`);
  return parts.join("; ");
}

// The end of the text before the round, and the guesses after it.
function lineOf({ words, untold }) {
  const marks = words.guesses.map((piece, at) => {
    const mark = chip(piece, "guessed");
    if (untold[at]) mark.title = UNTOLD_WORDS;
    return mark;
  });
  const last = words.last ? chip(words.last, "sd-last") : null;
  const context = el("span", "sd-howContext", words.context.replaceAll("\n", "\u21b5"));
  const node = el("p", "sd-howLine", "", [context, ...[...(last ? [last] : []), ...marks].flatMap(spaced)]);
  node.dir = "auto";
  return { node, last, marks };
}

// One token, drawn on its own.
export function chip(piece, kind = "") {
  const mark = el("span", `sd-token sd-word ${kind}`, shown(piece));
  mark.dataset.kind = kind;
  mark.dataset.space = /^\s+\S/.test(piece) ? " " : "";
  return mark;
}

// A token's leading space is drawn before it, where a line may break.
export const spaced = (mark) => [mark.dataset.space, mark];

export function dress(mark, kind) {
  if (mark.dataset.kind === kind) return;
  if (mark.dataset.kind) mark.classList.remove(mark.dataset.kind);
  mark.classList.add(kind);
  mark.dataset.kind = kind;
}

// A bar of measured seconds; all of them share one scale. `squares`: the positions that a pass reads. `places`: the
// decimal places of its milliseconds, where it is compared with another.
class Row {
  constructor({ longest }, label, parts, { squares = 0, places = undefined } = {}) {
    this.total = sum(parts.map(([, seconds]) => seconds));
    this.kinds = new Set(parts.filter(([, seconds]) => seconds > 0).map(([kind]) => kind));
    this.fill = el("span", "sd-howFill");
    this.fill.style.width = `${(this.total / longest) * 100}%`;
    for (const [kind, seconds] of parts.filter(([, seconds]) => seconds > 0)) {
      const part = el("span", `sd-howPart ${kind}`);
      part.style.flexGrow = String(seconds / this.total);
      this.fill.append(part);
    }
    this.value = el("span", "sd-howValue", milliseconds(this.total, places));
    const boxes = Array.from({ length: squares }, () => el("span", "sd-howSquare"));
    this.node = el("div", "sd-howRow", "", [
      el("span", "sd-howLabel", "", [
        ...(squares ? [el("span", "sd-howSquares", "", boxes)] : []),
        el("span", "", label),
      ]),
      el("span", "sd-howBar", "", [el("span", "sd-howTrack", "", [this.fill, this.value])]),
    ]);
  }

  // Names the parts of the bar below it.
  withKey() {
    const names = [...this.kinds].map((kind) =>
      el("span", "", "", [el("span", `sd-howPart ${kind}`), el("span", "", PARTS[kind])]),
    );
    this.node.append(el("span", "sd-howKey", "", names));
    return this;
  }

  grow(seconds) {
    const share = this.total > 0 ? Math.min(1, seconds / this.total) : 1;
    this.fill.style.clipPath = share < 1 ? `inset(0 ${(1 - share) * 100}% 0 0)` : "";
    this.value.classList.toggle("later", share < 1);
  }
}
