// A race as a picture to post: 1200 x 630, light, and understandable without the page.
import { figureName } from "../lib/definitions.js";
import { factorOf } from "../lib/figures.js";
import { measuredHere, originOf, sourceOf } from "../lib/origins.js";
import { firstSentence } from "../lib/sentences.js";
import { kindsOf } from "../race/race.js";

export const [WIDTH, HEIGHT] = [1200, 630];
const SMALLEST = 15; // pixels of a letter's height
const LEFT = 56;
const RIGHT = WIDTH - LEFT;
const BAR = { left: 250, right: 1040, height: 28, cell: 9 }; // of a lane; its seconds are to the right of it
const INK = "#1f2937";
const MUTED = "#5b6472";
const BLUE = "#1d5fb8";
const RULE = "#e5e7eb";
const PASS = { plain: "#5b6472", draft: "#7fb0ea", verify: BLUE, rest: "#d5dae1" };
const CELL = { accepted: "#a9cdf6", correction: "#f0a030", bonus: "#374151", target: "#c3c9d2", unknown: "#c3c9d2" };
const LANES = { generate: "Plain generate", "speculative:0": "Our loop, no draft", speculative: "Speculative" };
const SERVERS = { generate: "Plain server", speculative: "Speculative server" };

// The content of the picture. `address` is that of the page.
export function cardOf(race, address) {
  const { verdict, begin, lanes } = race;
  const { machine, runs, day } = sourceOf(race);
  return {
    factor: factorOf(verdict),
    faster: verdict.faster && !verdict.about,
    sentence: [verdict.warning, verdict.sentence].filter(Boolean).join(" ").slice(0, 400),
    doubt: verdict.about
      ? firstSentence(verdict.notes.find(({ kind }) => verdict.doubts.includes(kind))?.text ?? "")[0]
      : "",
    figures: verdict.figures.slice(0, 4).map((figure) => [figure.value, figureName(figure)]),
    lanes: Object.keys(LANES)
      .filter((key) => lanes.get(key)?.rounds.length > 1)
      .map((key) => barOf(lanes.get(key))),
    pair: [begin.pair, verdict.caption].filter(Boolean).join(" \u00b7 "),
    origin: [...(measuredHere(begin) ? [] : [originOf({ ...begin, name: "" })]), machine, runs, day],
    address: nameOf(address),
  };
}

// A lane after its first token: its passes, and the tokens of each round.
function barOf(lane) {
  const rounds = lane.rounds.slice(1).map((round, at) => {
    const whole = lane.seconds[at + 1] - lane.seconds[at];
    const draft = Math.min(whole, round.draft_seconds ?? 0);
    const verify = Math.min(whole - draft, round.verify_seconds ?? whole);
    return { start: lane.seconds[at], whole, draft, verify, kinds: kindsOf(round) };
  });
  const seconds = lane.end?.duration ?? `${lane.duration.toFixed(2)}\u00a0s`;
  const { [lane.key]: label } = lane.server ? SERVERS : LANES;
  return { key: lane.key, label, server: lane.server !== null, seconds, duration: lane.duration, rounds };
}

// An address that others can open; otherwise the project's name.
export function nameOf(address) {
  const { host, pathname } = new URL(address);
  return isOwn(address) ? "specdec" : host + pathname.replace(/\/$/, "");
}

// Whether only this computer can open an address.
export function isOwn(address) {
  const { hostname } = new URL(address);
  return hostname === "localhost" || hostname === "[::1]" || hostname.startsWith("127.");
}

export function drawCard(canvas, card, family) {
  Object.assign(canvas, { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = BLUE;
  pen.fillRect(0, 0, WIDTH, 10);
  // Writes a text so that it fits: smaller, or cut if it would become too small.
  const write = (text, x, y, size, { weight = 400, colour = INK, width = RIGHT - x, align = "left" } = {}) => {
    const inSize = (pixels) => (pen.font = `${weight} ${pixels}px ${family}`);
    inSize(size);
    while (size > SMALLEST && pen.measureText(text).width > width) inSize(--size);
    pen.fillStyle = colour;
    pen.textAlign = /** @type {CanvasTextAlign} */ (align);
    const shown = fitted(pen, text, width);
    pen.fillText(shown, x, y);
    return pen.measureText(shown).width;
  };

  drawVerdict(pen, card, write, family);
  drawFigures(card, write);
  drawLanes(pen, card.lanes, write);
  pen.fillStyle = RULE;
  pen.fillRect(LEFT, 540, RIGHT - LEFT, 1);
  write(card.pair, LEFT, 574, 20, { weight: 600 });
  const place = write(card.address, RIGHT, 604, 20, { weight: 600, width: 480, align: "right" });
  write(card.origin.join(" \u00b7 "), LEFT, 604, 18, { colour: MUTED, width: RIGHT - LEFT - place - 32 });
}

// The factor as large as it gets, and beside it the sentence in as many lines as it needs.
function drawVerdict(pen, { factor, faster, sentence, doubt }, write, family) {
  const wide = factor ? write(factor, LEFT - 4, 160, 132, { weight: 700, colour: faster ? BLUE : INK, width: 460 }) : 0;
  const x = factor ? LEFT + wide + 40 : LEFT;
  let size = 40;
  let lines;
  do {
    size -= 2;
    pen.font = `600 ${size}px ${family}`;
    lines = wrapped(pen, sentence, RIGHT - x);
  } while (size > 20 && lines.length * size * 1.25 > 120);
  const fitting = Math.floor(140 / (size * 1.25));
  if (lines.length > fitting) lines = [...lines.slice(0, fitting - 1), lines.slice(fitting - 1).join(" ")];
  const top = 113 - ((lines.length - 1) * size * 1.25) / 2 + size * 0.35;
  lines.forEach((line, at) => write(line, x, top + at * size * 1.25, size, { weight: 600 }));
  if (doubt) write(doubt, x, 196, 19, { colour: MUTED });
}

function drawFigures({ figures }, write) {
  const wide = (RIGHT - LEFT) / 4;
  figures.forEach(([value, label], at) => {
    const x = LEFT + at * wide;
    write(value, x, 236, 34, { weight: 700, width: wide - 24 });
    write(label, x, 264, 19, { colour: MUTED, width: wide - 24 });
  });
}

// A bar for each lane, all on one scale: a block for each pass, as wide as its time, and a cell below for each token.
function drawLanes(pen, lanes, write) {
  const longest = Math.max(...lanes.map((lane) => lane.duration)) || 1;
  const at = (seconds) => BAR.left + (seconds / longest) * (BAR.right - BAR.left);
  lanes.forEach((lane, row) => {
    const y = 306 + row * 66;
    const strong = lane.key === "speculative";
    write(lane.label, LEFT, y + 20, 19, { weight: strong ? 700 : 400, width: BAR.left - LEFT - 16 });
    for (const round of lane.rounds) drawRound(pen, lane, round, at, y);
    write(lane.seconds, at(lane.duration) + 12, y + 20, 19, { weight: strong ? 700 : 400 });
  });
  const y = 306 + lanes.length * 66 + 6;
  let x = BAR.left;
  const kinds = new Set(lanes.flatMap((lane) => lane.rounds.flatMap((round) => round.kinds)));
  const named = [
    ...(lanes.some((lane) => lane.rounds.some((round) => round.kinds.includes("accepted")))
      ? lanes.some((lane) => lane.server)
        ? [[PASS.verify, "rounds of the server"]]
        : [[PASS.draft, "draft passes"], [PASS.verify, "target passes"]] // prettier-ignore
      : []),
    ...[["accepted", "guess kept"], ["correction", "correction"], ["bonus", "bonus token"]] // prettier-ignore
      .filter(([kind]) => kinds.has(kind))
      .map(([kind, name]) => [CELL[kind], name, kind]),
  ];
  for (const [colour, name, kind] of named) {
    pen.fillStyle = colour;
    pen.fillRect(x, y + (kind ? 5 : 0), 14, kind ? BAR.cell : 14);
    x += 22 + write(name, x + 20, y + 13, 16, { colour: MUTED }) + 22;
  }
}

function drawRound(pen, { key }, { start, whole, draft, verify, kinds }, at, y) {
  const gap = at(start + whole) - at(start) > 4 ? 1 : 0;
  const block = (from, to, colour) => {
    pen.fillStyle = colour;
    pen.fillRect(at(from), y, Math.max(0.3, at(to) - at(from)), BAR.height);
  };
  block(start, start + whole, PASS.rest);
  if (draft) block(start, start + draft, PASS.draft);
  block(start + draft, start + draft + verify, key === "generate" ? PASS.plain : PASS.verify);
  pen.fillStyle = "#ffffff";
  if (gap) pen.fillRect(at(start + whole) - gap, y, gap, BAR.height);
  const wide = (at(start + whole) - at(start) - gap) / kinds.length;
  kinds.forEach((kind, place) => {
    pen.fillStyle = CELL[kind];
    pen.fillRect(at(start) + place * wide, y + BAR.height + 4, wide > 4 ? wide - 1 : wide, BAR.cell);
  });
}

// A text that fits the width, with an ellipsis in place of what does not.
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}\u2026`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${text.slice(0, low)}\u2026`;
}

function wrapped(pen, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && pen.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
