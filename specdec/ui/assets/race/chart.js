// Tokens against seconds: a step line for each lane, from its own start, with labels at the ends.
import { el, narrow, nextFrame, onLook, reducedMotion, scaleOf, svg, wide } from "../lib/dom.js";
import { labelOf, laneOf } from "../lib/lanes.js";
import { LINE, Plot, rounded } from "./plot.js";

const MAIN = ["generate", "speculative"];
const SHAPES = {
  circle: "M9,5a4,4 0 1 0 -8,0a4,4 0 1 0 8,0",
  square: "M1.5,1.5h7v7h-7z",
  "triangle-up": "M5,1l4.5,8h-9z",
  diamond: "M5,0l5,5l-5,5l-5,-5z",
};

// The mark of a further lane; a circle if the table has none that can be drawn.
export const signOf = (key) => {
  const sign = laneOf(key)?.sign;
  return Object.hasOwn(SHAPES, sign) ? sign : "circle";
};

// About how many pixels the longest of some bold lines takes in a label.
const widthOf = (lines) => 7.5 * Math.max(...lines.map((line) => line.length)) + 10;

export class Chart {
  #lanes = new Map(); // key -> Lane
  #asked = 1; // tokens
  #top = 1; // of the y axis
  #range = 0.1;
  #notes = [];
  #moment = null; // of a replay, in seconds; null is the end
  #cut = Infinity; // tokens over which the lanes are compared
  #wanted = false; // a drawing, in the next frame
  #keyed = ""; // the texts of the legend
  #drawn = false;

  /** @param {import("./focus.js").Focus} focus */
  constructor(focus) {
    this.plot = new Plot();
    // Dots on the lines, above the drawing, so that they follow the pointer without a new one.
    this.lit = el("span", "sd-dot");
    this.current = el("span", "sd-dot current");
    this.lit.hidden = this.current.hidden = true;
    this.key = el("ul", "sd-chartKey"); // of the further lanes: the ends of their lines are too close for labels
    this.node = el("div", "sd-chart", "", [this.plot.node, this.lit, this.current, this.key]);
    focus.add(this);
    this.plot.node.addEventListener("pointermove", (event) => focus.point(this.#roundAt(event)));
    this.plot.node.addEventListener("pointerleave", () => focus.point(null));
    this.plot.node.addEventListener("click", (event) => {
      const at = this.#roundAt(event);
      if (at) focus.choose(at, this.plot.node);
    });
    onLook(this.node, () => this.#draw());
  }

  set words(text) {
    this.plot.node.setAttribute("aria-label", text);
  }

  // An empty chart for this many tokens.
  start(asked) {
    this.#lanes = new Map();
    this.#asked = this.#top = asked;
    this.#cut = Infinity;
    this.#range = 0.1;
    this.#notes = [];
    this.#moment = null;
    this.pointed = this.chosen = null;
    this.#draw();
  }

  // The new lane needs its own label, not that of the lane before it.
  addLane(lane) {
    this.#lanes.set(lane.key, lane);
    this.#notes = this.#notes.filter((note) => note.lane !== lane.key && note.lane !== "bracket");
    this.#draw();
  }

  // Rounds were added. With reduced motion a lane is drawn once, at its end.
  flush() {
    if (!reducedMotion()) this.#draw();
  }

  // The race was stopped: its lanes are compared over this many tokens, and the axes end there.
  cutAt(tokens) {
    this.#cut = this.#asked = tokens;
    this.#freeze();
    this.#draw();
  }

  // The lane's own label. The axes end at the slowest and the longest lane, and only grow from there.
  endLane(key, lines) {
    this.#freeze();
    this.#notes = this.#notes.filter((note) => note.lane !== key).concat({ lane: key, lines });
    this.#draw();
  }

  bracket(text) {
    this.#notes.push({ lane: "bracket", lines: [text] });
    this.#draw();
  }

  // A moment of the replay: every line is drawn up to it. null is the end.
  showUntil(seconds) {
    this.#moment = seconds;
    this.#draw();
  }

  light(at) {
    this.pointed = at;
    this.#mark(this.lit, at);
  }

  choose(at) {
    this.chosen = at;
    this.#mark(this.current, at);
  }

  // A dot where a round of a lane ended; on another lane, where it wrote the same token.
  #mark(dot, at) {
    const lane = at && this.#lanes.get(at.lane);
    const there = lane && this.#drawn && at.round < this.#count(lane);
    dot.hidden = !there;
    if (!there) return;
    const [left, top] = this.plot.place(lane.seconds[at.round], lane.counts[at.round]);
    dot.style.left = `${left}px`;
    dot.style.top = `${top}px`;
  }

  // The round nearest to the pointer, on the nearest line.
  #roundAt(event) {
    if (!this.#drawn || !this.#lanes.size) return null;
    const [seconds, tokens] = this.plot.at(event);
    const near = [...this.#lanes.values()]
      .filter((lane) => lane.rounds.length)
      .map((lane) => {
        const round = Math.max(0, Math.min(lane.roundsAt(seconds), lane.rounds.length - 1));
        return { lane: lane.key, round, away: Math.abs(lane.counts[round] - tokens) };
      })
      .sort((one, other) => one.away - other.away)[0];
    return near ? { lane: near.lane, round: near.round, place: null, row: null } : null;
  }

  // In the order of drawing, whichever ran first: the speculative line is on top.
  get #keys() {
    return [...this.#lanes.keys()].sort((one, other) => MAIN.indexOf(one) - MAIN.indexOf(other));
  }

  #draw() {
    if (this.#wanted) return;
    this.#wanted = true;
    nextFrame(() => {
      this.#wanted = false;
      if (this.node.clientWidth) this.#drawAll(); // else the tab is hidden; its width changes when it is shown
    });
  }

  #freeze() {
    const ends = this.#keys.map((key) => this.#end(key));
    this.#range = Math.max(...ends.map(({ x }) => x), 1e-3);
    this.#top = Math.max(...ends.map(({ y }) => y), 1);
  }

  #grow() {
    const ends = this.#keys.map((key) => this.#end(key));
    const [latest, most] = [Math.max(0, ...ends.map(({ x }) => x)), Math.max(0, ...ends.map(({ y }) => y))];
    if (latest > this.#range) this.#range = rounded(latest);
    if (most > this.#top) this.#top = Math.min(rounded(most), this.#asked);
  }

  #drawAll() {
    this.#grow();
    const space = this.#space(narrow());
    const clock = space.small
      ? ["Seconds after first token", "(each lane's own clock)"]
      : ["Seconds after first token (each lane's own clock)"];
    this.plot.frame(space, [this.#range, this.#top], [clock, ["Tokens written"]], space.small ? [4, 4] : [6, 4]);
    for (const key of this.#keys) {
      const lane = this.#lanes.get(key);
      const count = this.#count(lane);
      // Further lanes are alike in colour: dashes and the sign at the line's end, which the legend repeats, part them.
      this.plot.steps(key, lane.seconds.slice(0, count), lane.counts.slice(0, count), laneOf(key)?.dash);
    }
    for (const key of this.#keys.filter((key) => this.#hasSign(key))) {
      const { x, y } = this.#end(key);
      this.plot.sign(SHAPES[signOf(key)], x, y);
    }
    this.#writeLabels(space);
    this.#writeKey();
    this.#drawn = true;
    this.#mark(this.lit, this.pointed);
    this.#mark(this.current, this.chosen);
  }

  #writeKey() {
    const lanes = this.#further ? [] : this.#keys.filter((key) => !MAIN.includes(key));
    const ended = this.#ended();
    const said = lanes.map((key) => ended.find(({ lane }) => lane === key)?.lines ?? [labelOf(key)]);
    const words = JSON.stringify(said);
    if (words === this.#keyed) return;
    this.#keyed = words;
    this.key.replaceChildren(
      ...lanes.map((key, at) => {
        const sign = svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" });
        sign.append(svg("path", { d: SHAPES[signOf(key)] }));
        return el("li", "", "", [sign, el("span", "", said[at].join(" "))]);
      }),
    );
  }

  #hasSign(key) {
    return !MAIN.includes(key) && this.#lanes.get(key).finished && this.#there(key);
  }

  // The visible rounds of a lane: up to the moment of the replay, and up to the end of the comparison.
  #count(lane) {
    const there = this.#moment === null ? lane.rounds.length : lane.roundsAt(this.#moment);
    return Math.min(there, this.#compared(lane));
  }

  #compared(lane) {
    const beyond = lane.counts.findIndex((count) => count > this.#cut);
    return beyond < 0 ? lane.rounds.length : beyond;
  }

  // The margins for the labels, and the room between them.
  #space(small) {
    const slower = this.#last() === "speculative";
    const scale = small ? 1 : scaleOf();
    const space = small
      ? { left: 54, right: slower ? 104 : 62, top: 70, height: 170, bottom: 64 }
      : { left: 56, right: slower ? 112 : 72, top: 68, height: wide() ? 320 : 196, bottom: 50 };
    const width = Math.max(1, this.node.clientWidth / scale - space.left - space.right);
    return { ...space, small, scale, width };
  }

  // The last visible point of a lane.
  #end(key, count) {
    const lane = this.#lanes.get(key);
    const last = lane ? (count ?? this.#compared(lane)) - 1 : -1;
    return last < 0 ? { x: 0, y: 0 } : { x: lane.seconds[last], y: lane.counts[last] };
  }

  // Whether the replay has reached the end of the lane.
  #there(key) {
    return this.#moment === null || this.#end(key).x <= this.#moment;
  }

  // Nothing if the gap is too narrow to be seen.
  #bracket(space) {
    const gap = (Math.abs(this.#end("generate").x - this.#end("speculative").x) / this.#range) * space.width;
    return this.#moment === null && gap > 40 ? this.#notes.find((note) => note.lane === "bracket") : null;
  }

  #ended() {
    return this.#notes.filter(({ lane }) => lane !== "bracket" && this.#there(lane));
  }

  // The slowest lane. Its label begins at the end of its line and may extend into the right margin.
  #last() {
    const names = this.#keys.filter((key) => MAIN.includes(key));
    return names.sort((one, other) => this.#end(other).x - this.#end(one).x)[0];
  }

  #writeLabels(space) {
    const ended = this.#ended().filter(({ lane }) => MAIN.includes(lane));
    // The name of a growing line is at its tip.
    for (const lane of MAIN.filter((key) => this.#lanes.has(key) && !ended.some((note) => note.lane === key))) {
      const tip = this.#end(lane, this.#count(this.#lanes.get(lane)));
      const [x, y] = [this.plot.x(tip.x), this.plot.y(tip.y)];
      const plain = lane === "generate";
      // If the plain line is to the right of the speculative tip, that tip's name is on its left, if it fits.
      const right = plain || x - space.left < 96;
      const below = plain ? 17 : -8;
      this.plot.label([labelOf(lane)], x + (right ? 7 : -7), y + below, right ? "start" : "end", `sd-label ${lane}`);
    }
    this.#writeFurther();
    const last = this.#last();
    for (const { lane, lines } of ended) {
      const end = this.#end(lane);
      const [x, y] = [this.plot.x(end.x), this.plot.y(end.y) - 17];
      const name = `sd-label ${lane}`;
      if (lane === last) {
        this.plot.label(lines, x + 7, y, "start", name);
        continue;
      }
      const one = !space.small && x > widthOf([lines.join(" ")]);
      const fits = x > widthOf(lines);
      this.plot.label(one ? [lines.join(" ")] : lines, fits ? x - 7 : x + 1, y, fits ? "end" : "start", name);
    }
    this.#writeBracket(space, ended);
  }

  // A further lane's name stands right of the end of its line, if it is the only one and the plain line leaves room.
  get #further() {
    const keys = this.#keys.filter((key) => this.#hasSign(key));
    const plain = this.#lanes.get("generate");
    if (keys.length !== 1 || !plain?.finished) return null;
    const end = this.#end(keys[0]);
    const note = this.#ended().find(({ lane }) => lane === keys[0]);
    const lines = note?.lines ?? [labelOf(keys[0])];
    const height = (20 / this.#space(narrow()).height) * this.#top; // of a line of the label, in tokens
    const fits = (label) => {
      const free = plain.counts.findIndex((count) => count > end.y - (label.length + 0.2) * height);
      const right = this.plot.x(free < 0 ? this.#range : plain.seconds[free]);
      return this.plot.x(end.x) + 4 + widthOf(label) < right;
    };
    const parts = lines.flatMap((line) => line.split(/(?<=,) /)); // "Our loop,", "no draft", "0.36 s"
    const label = [[lines.join(" ")], lines, parts, parts.slice(1)].find((one) => one.length && fits(one));
    return label ? { label, end } : null;
  }

  #writeFurther() {
    const found = this.#further;
    if (!found) return;
    const below = 11 + (found.label.length - 1) * LINE; // its first line begins at the end of the lane's
    this.plot.label(found.label, this.plot.x(found.end.x) + 9, this.plot.y(found.end.y) + below, "start", "sd-label");
  }

  // The bracket is above the ends of the lines. Its words are above its middle or, if a label of a line is there, above
  // that label.
  #writeBracket(space, ended) {
    const bracket = this.#bracket(space);
    if (!bracket) return;
    const [plain, ours] = [this.#end("generate"), this.#end("speculative")];
    const [from, to, y] = [this.plot.x(plain.x), this.plot.x(ours.x), this.plot.y(ours.y)];
    const free = ended.every(
      ({ lane, lines }) => lane === this.#last() || this.plot.x(this.#end(lane).x) > widthOf(lines),
    );
    this.plot.bracket(ours.x, plain.x, y - 8);
    const [left, right] = [Math.min(from, to), Math.max(from, to)];
    const half = widthOf(bracket.lines) / 2;
    // Right of a label that begins at the bracket's left end.
    const taken = free ? left : left + Math.max(...ended.map(({ lines }) => widthOf(lines))) + 12;
    const middle = Math.max((left + right) / 2, taken + half);
    if (right - left > 100 && middle + half <= right)
      this.plot.label(bracket.lines, middle, y - 17, "middle", "sd-label");
    else this.plot.label(bracket.lines, (left + right) / 2, y - 51, "middle", "sd-label");
  }
}
