// A race as a picture to post: 1200 x 630, light, and understandable without the page.
import { besideShares, figureName } from "../lib/definitions.js";
import { placesTogether, ratiosOf } from "../lib/digits.js";
import { doubtOf, factorOf, sharesOf } from "../lib/figures.js";
import { measuredHere, NO_MACHINE, originOf, sourceOf } from "../lib/origins.js";
import { inOneLine } from "../lib/sentences.js";
import { kindsOf, nameOfWider } from "../race/race.js";

export const [WIDTH, HEIGHT] = [1200, 630];
const [SMALL, SMALLEST] = [25, 20]; // pixels of a letter's height: a post shows the picture at half its size
const PROMPT = 200; // characters of the prompt that are looked at; it has one line
const LEFT = 56;
const RIGHT = WIDTH - LEFT;
const BAR = { left: 280, right: 1040, height: 22 }; // of a lane; its seconds are to the right of it
const [LANES_TOP, NEXT] = [284, 36]; // pixels: the first lane, and from one to the next
const OURS = "speculative";
// The colours of the page in light, by the names of its style.
export const COLOURS = {
  ink: "#1f2937",
  muted: "#5b6472",
  blue: "#1d5fb8",
  rule: "#e5e7eb",
  accepted: "#d3e5fb",
  plain: "#5b6472",
  mark: "#374151",
  "bar-draft": "#5b93d8",
  "bar-verify": "#1d5fb8",
  "bar-rest": "#7b8494",
  "correction-mark": "#9a5200",
};
const { ink: INK, muted: MUTED, blue: BLUE, rule: RULE } = COLOURS;
const CELLS = { accepted: "bar-draft", correction: "correction-mark" }; // of a token; a bonus token is an outline
export const METHOD = "A small model guesses, a large one checks all guesses at once.";
const LANES = { generate: "Plain generate", "speculative:0": "Our loop, no draft", speculative: "Speculative" };
const SERVERS = { generate: "Plain server", speculative: "Speculative server" };

// The content of the picture. `address` is that of the page.
export function cardOf(race, address) {
  const { verdict, begin, lanes } = race;
  const { machine, runs, day } = sourceOf(race);
  const here = measuredHere(begin);
  const shown = Object.keys(LANES)
    .map((key) => lanes.get(key))
    .filter((lane) => lane?.rounds.length > 1);
  const times = shown.map((lane) => lane.duration);
  const compared = ratiosOf(times.length, verdict.factor, verdict.about);
  const ratios = compared.map(([above, below, digits]) => [below, above, digits]);
  const places = placesTogether(times, ratios, 2);
  const short = Math.max(...times) < 1;
  const shares = sharesOf(verdict.figures);
  const where = machine === NO_MACHINE ? machine : `${here ? "Measured" : "recorded"} on ${machine}`;
  return {
    factor: factorOf(verdict),
    look: verdict.about ? "muted" : verdict.faster ? "blue" : "ink", // as on the page
    sentence: [verdict.warning, besideShares(verdict.sentence, shares)].filter(Boolean).join(" ").slice(0, 400),
    doubt: doubtOf(verdict),
    figures: verdict.figures.slice(0, 4).map((figure) => [figure.value, figureName(figure)]),
    signs: shares.length > 1 ? ["= ", "\u00d7 "] : [], // of the first figures, whose product is the factor
    unsure: verdict.about ? shares.length : 0, // of the figures, the first
    lanes: shown.map((lane) => barOf(lane, places, short)),
    prompt: inOneLine((begin.settings.prompt ?? "").slice(0, PROMPT)),
    pair: [begin.pair, verdict.caption].filter(Boolean).join(" \u00b7 "),
    origin: [...(here ? [] : [originOf({ ...begin, name: "" })]), where, runs, day],
    address: nameOf(address),
  };
}

// A lane after its first token: its passes, and the tokens of each round. `places` are those of its seconds; where all
// lanes are `short`, their times stand in milliseconds.
function barOf(lane, places, short) {
  const rounds = lane.rounds.slice(1).map((round, at) => {
    const whole = lane.seconds[at + 1] - lane.seconds[at];
    const draft = Math.min(whole, round.draft_seconds ?? 0);
    const check = round.draft === null ? 0 : (round.verify_seconds ?? whole); // not every lane tells its passes
    const verify = Math.min(whole - draft, check);
    const guesses = round.draft?.length ?? 0;
    return { start: lane.seconds[at], whole, draft, guesses, verify, kinds: kindsOf(round) };
  });
  const time = short
    ? `${(1000 * lane.duration).toFixed(Math.max(0, places - 3))}\u00a0ms`
    : `${lane.duration.toFixed(places)}\u00a0s`;
  const { [lane.key]: label } = lane.server ? SERVERS : LANES;
  return { key: lane.key, label, server: lane.server !== null, time, duration: lane.duration, rounds };
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
  pen.fillRect(LEFT, 505, RIGHT - LEFT, 1);
  // A doubt takes the place of the sentence on the method, which is then a further line down here.
  const [first, next, size] = card.doubt ? [530, 28, SMALL - 2] : [538, 33, SMALL];
  const lines = [...(card.doubt ? [METHOD] : []), card.prompt && `Prompt: ${card.prompt}`];
  lines.forEach((line, at) => line && write(line, LEFT, first + at * next, size, { colour: MUTED }));
  const last = first + (lines.length + 1) * next;
  write(card.pair, LEFT, last - next, size, { weight: 600 });
  const place = write(card.address, RIGHT, last, size, { weight: 600, width: 480, align: "right" });
  write(card.origin.join(" \u00b7 "), LEFT, last, size, { colour: MUTED, width: RIGHT - LEFT - place - 32 });
}

// The factor as large as it gets, and beside it the sentence in as many lines as it needs.
function drawVerdict(pen, { factor, look, sentence, doubt }, write, family) {
  const wide = factor ? write(factor, LEFT - 4, 143, 132, { weight: 700, colour: COLOURS[look], width: 460 }) : 0;
  const x = factor ? LEFT + wide + 40 : LEFT;
  let size = 40;
  let lines;
  do {
    size -= 2;
    pen.font = `600 ${size}px ${family}`;
    lines = wrapped(pen, sentence, RIGHT - x);
  } while (size > 20 && lines.length * size * 1.25 > 100);
  const fitting = Math.floor(140 / (size * 1.25));
  if (lines.length > fitting) lines = [...lines.slice(0, fitting - 1), lines.slice(fitting - 1).join(" ")];
  const top = 92 - ((lines.length - 1) * size * 1.25) / 2 + size * 0.35;
  lines.forEach((line, at) => write(line, x, top + at * size * 1.25, size, { weight: 600 }));
  write(doubt || METHOD, x, 172, SMALL, { colour: MUTED });
}

function drawFigures({ figures, signs, unsure }, write) {
  const wide = (RIGHT - LEFT) / 4;
  figures.forEach(([value, label], at) => {
    const x = LEFT + at * wide;
    write(`${signs[at] ?? ""}${value}`, x, 216, 38, {
      weight: 700,
      colour: at < unsure ? MUTED : INK,
      width: wide - 24,
    });
    write(label, x, 246, SMALL, { colour: MUTED, width: wide - 24 });
  });
}

// The lanes as the page's strip draws them: all on one scale, each pass as wide as its time. Below them the speculative
// lane stands again, over the whole width, with a cell for each token below the pass that gave it.
function drawLanes(pen, lanes, write) {
  const longest = Math.max(...lanes.map((lane) => lane.duration)) || 1;
  const over = (seconds) => (time) => BAR.left + (time / seconds) * (BAR.right - BAR.left);
  const at = over(longest);
  let top = LANES_TOP;
  for (const lane of lanes) {
    const weight = lane.key === OURS ? 700 : 400;
    write(lane.label, LEFT, top + 20, SMALL, { weight, width: BAR.left - LEFT - 16 });
    for (const round of lane.rounds) drawPasses(pen, lane.key, round, at, top);
    write(lane.time, at(lane.duration) + 12, top + 20, SMALL, { weight });
    top += NEXT;
  }
  const ours = lanes.find(({ key }) => key === OURS);
  if (ours?.duration) {
    const near = over(ours.duration);
    drawFan(pen, at(ours.duration), top - NEXT + BAR.height, top);
    write(nameOfWider(longest / ours.duration), LEFT, top + 20, SMALL, { colour: BLUE });
    write(ours.time, BAR.right + 12, top + 20, SMALL);
    const most = Math.max(1, ...ours.rounds.map(({ kinds }) => kinds.length));
    const cell = Math.max(2, Math.min(8, Math.floor(46 / most)));
    for (const round of ours.rounds) {
      drawPasses(pen, OURS, round, near, top);
      drawTokens(pen, round, near, top + BAR.height + 3, cell);
    }
  }
  drawLegend(pen, lanes, write);
}

// From the end of a lane to that of its enlarged one.
function drawFan(pen, right, top, bottom) {
  pen.fillStyle = COLOURS.accepted;
  pen.beginPath();
  pen.moveTo(BAR.left, top);
  pen.lineTo(right, top);
  pen.lineTo(BAR.right, bottom);
  pen.lineTo(BAR.left, bottom);
  pen.fill();
}

function drawLegend(pen, lanes, write) {
  const ours = lanes.filter(({ key }) => key === OURS);
  const kinds = new Set(ours.flatMap((lane) => lane.rounds.flatMap((round) => round.kinds)));
  const passes = lanes.some((lane) => lane.server)
    ? [["rounds of the server", "bar-verify"]]
    : [["draft pass", "bar-draft"], ["target pass", "plain", "bar-verify"]]; // prettier-ignore
  const tokens = [["accepted", "guess kept"], ["correction", "correction"], ["bonus", "bonus token"]]; // prettier-ignore
  let x = BAR.left;
  const name = (words) => (x += 22 + write(words, x + 22, 490, SMALL - 2, { colour: MUTED }) + 24);
  for (const [words, ...names] of kinds.has("accepted") ? passes : []) {
    names.forEach((colour, part) => {
      pen.fillStyle = COLOURS[colour];
      pen.fillRect(x + (part * 16) / names.length, 474, 16 / names.length, 16);
    });
    name(words);
  }
  for (const [kind, words] of tokens) {
    if (!kinds.has(kind)) continue;
    drawToken(pen, kind, x + 4, 478, 10, 8);
    name(words);
  }
}

function drawPasses(pen, lane, { start, whole, draft, guesses, verify }, at, top) {
  const block = (from, seconds, colour) => {
    const wide = at(from + seconds) - at(from);
    pen.fillStyle = COLOURS[colour];
    pen.fillRect(at(from), top, Math.max(0.6, wide - (wide > 4 ? 1 : 0)), BAR.height);
  };
  if (guesses) block(start, draft, "bar-draft"); // a round without a guess may wait before its pass
  if (verify) block(start + draft, verify, lane === OURS ? "bar-verify" : "plain");
  if (!draft && !verify) block(start, whole, "bar-rest");
}

// The tokens of a round, one below the other from `top`.
function drawTokens(pen, { start, whole, draft, verify, kinds }, at, top, cell) {
  const wide = Math.max(1.5, Math.min(10, at(start + whole) - at(start) - 1.5));
  const left = at(start + draft + (verify || whole) / 2) - wide / 2;
  kinds.forEach((kind, place) => drawToken(pen, kind, left, top + place * cell, wide, cell - 1));
}

function drawToken(pen, kind, x, y, wide, high) {
  if (kind === "bonus") {
    pen.strokeStyle = COLOURS.mark;
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, Math.max(0.5, wide - 1), Math.max(0.5, high - 1));
    return;
  }
  pen.fillStyle = COLOURS[CELLS[kind] ?? "bar-rest"];
  pen.fillRect(x, y, wide, high);
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
