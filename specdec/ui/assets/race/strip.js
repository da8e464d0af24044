// The passes of each lane, true to scale: a block is as wide as its pass took, and its tokens are below it.
import { colourOf, el, onLook, scaleOf } from "../lib/dom.js";
import { labelOf, laneOrder } from "../lib/lanes.js";
import { word } from "../lib/words.js";
import { kindsOf } from "./race.js";

const PASS = 12; // pixels, height of a pass
const GAP = 2;
const ROOM = 74; // pixels right of the longest lane, for its time
const SHORT = { generate: "Plain", assisted: "Assisted", speculative: "Speculative" };
const CELLS = { accepted: "bar-draft", correction: "correction-mark", target: "bar-rest", unknown: "bar-rest" };

const TOKENS = { correction: "correction", bonus: "bonus" };
const KEY = { draft: "draft pass", verify: "target pass", accepted: "below it: guess kept", ...TOKENS };
const ON_SERVERS = { verify: "round of the server, drafting included", accepted: "below it: guess kept", ...TOKENS };

export class Strip {
  // lane key -> { lane, track, canvas, cover, lit, current, end, drawn: rounds on the canvas, most: tokens of a pass }
  #rows = new Map();
  #seconds = 0; // of the longest lane
  #moment = null;
  #marked = { lit: null, current: null };
  #drawn = 0; // the width of the latest drawing
  #width = 0; // the part of it for the passes
  #scale = 1; // of all heights

  /** @param {import("./focus.js").Focus} focus */
  constructor(focus) {
    this.focus = focus;
    focus.add(this);
    this.rows = el("div", "sd-stripRows");
    this.key = el("ul");
    this.words = el("span", "sd-stripWords");
    this.node = el("section", "sd-strip", "", [this.rows]);
    this.foot = el("div", "sd-stripFoot", "", [this.key, this.words]);
    this.#name(false);
    this.node.setAttribute("aria-label", "Passes, true to scale");
    onLook(this.rows, () => this.draw());
  }

  place(lanes, onServers = false) {
    this.#name(onServers);
    this.#rows = new Map();
    this.#seconds = 0;
    this.#moment = null;
    this.#marked = { lit: null, current: null };
    this.words.textContent = "";
    for (const key of [...lanes].sort((one, other) => laneOrder(one) - laneOrder(other))) {
      const parts = { canvas: el("canvas"), cover: el("span", "sd-stripCover"), lit: el("span", "sd-stripLit") };
      const row = { ...parts, current: el("span", "sd-stripLit current"), end: el("span", "sd-stripEnd"), lane: null };
      const track = el("div", "sd-track-of", "", [row.canvas, row.cover, row.current, row.lit, row.end]);
      track.setAttribute("role", "img");
      row.canvas.setAttribute("aria-hidden", "true");
      this.#rows.set(key, { ...row, track });
      track.addEventListener("pointermove", (event) => this.#point(key, event));
      track.addEventListener("pointerleave", () => this.focus.point(null));
      track.addEventListener("click", (event) => this.#pick(key, event));
      row.lit.hidden = row.current.hidden = row.cover.hidden = true;
    }
    this.rows.replaceChildren(
      ...[...this.#rows].map(([key, { track }]) =>
        el("div", `sd-stripRow ${key.replace(":", "-")}`, "", [
          el("span", "", "", [word(key, SHORT[key] ?? labelOf(key))]),
          track,
        ]),
      ),
    );
  }

  // The legend. A server tells no times of its passes.
  #name(onServers) {
    const kinds = Object.entries(onServers ? ON_SERVERS : KEY);
    this.key.replaceChildren(...kinds.map(([name, words]) => el("li", `sd-stripKey ${name}`, words)));
  }

  start(lane) {
    const row = this.#rows.get(lane.key);
    if (row) row.lane = lane;
    this.draw();
  }

  // The present lanes. The axis is as long as the longest of them needs.
  draw() {
    this.#seconds = this.#longest();
    this.#drawn = this.rows.clientWidth;
    this.#scale = scaleOf();
    this.#width = (this.#rows.values().next().value?.track.clientWidth ?? 0) - ROOM;
    const colour = colourOf(this.rows);
    for (const row of this.#rows.values()) {
      row.drawn = 0;
      if (row.lane) this.#drawRow(row, colour);
    }
    this.showUntil(this.#moment);
    for (const [name, at] of Object.entries(this.#marked)) this.#mark(name, at);
  }

  // Rounds were added. Only they are drawn, unless the scale has changed.
  grow() {
    if (this.#longest() !== this.#seconds || this.rows.clientWidth !== this.#drawn) return this.draw();
    const colour = colourOf(this.rows);
    for (const row of this.#rows.values()) if (row.drawn < row.lane?.rounds.length) this.#drawRow(row, colour);
    this.showUntil(this.#moment);
  }

  // Seconds on the axis. While a lane runs they grow in steps, so that the blocks do not shrink at every token.
  #longest() {
    const longest = Math.max(0, ...this.#lanes.map((lane) => lane.duration));
    return this.#lanes.some((lane) => lane.open) ? stepped(longest) : longest;
  }

  // A moment of the replay; null is the end.
  showUntil(seconds) {
    this.#moment = seconds;
    if (this.rows.clientWidth !== this.#drawn) return this.draw();
    for (const { lane, cover, end } of this.#rows.values()) {
      if (!lane) continue;
      cover.hidden = seconds === null;
      end.hidden = lane.open || (seconds !== null && seconds < lane.duration);
      if (seconds !== null) cover.style.clipPath = `inset(0 0 0 ${this.#x(Math.min(seconds, lane.duration))}px)`;
    }
  }

  light(at) {
    this.#mark("lit", at);
  }

  choose(at) {
    this.#mark("current", at);
  }

  get #lanes() {
    return [...this.#rows.values()].map(({ lane }) => lane).filter(Boolean);
  }

  #x(seconds) {
    return this.#seconds ? (seconds / this.#seconds) * this.#width : 0;
  }

  #mark(name, at) {
    this.#marked[name] = at;
    for (const [key, row] of this.#rows) {
      const round = at && row.lane ? (key === at.lane ? at.round : roundOf(row.lane, at.place)) : null;
      row[name].hidden = round === null || round === undefined || round < 1 || round >= row.lane.rounds.length;
      if (row[name].hidden) continue;
      const from = this.#x(row.lane.seconds[round - 1]);
      row[name].style.left = `${from - 1}px`;
      row[name].style.width = `${Math.max(3, this.#x(row.lane.seconds[round]) - from + 2)}px`;
    }
  }

  #roundAt(key, event) {
    const { lane, track } = this.#rows.get(key);
    if (!lane || lane.rounds.length < 2) return null;
    const seconds = (event.clientX - track.getBoundingClientRect().left) / (this.#x(1) || 1);
    return Math.max(1, Math.min(lane.roundsAt(seconds), lane.rounds.length - 1));
  }

  #point(key, event) {
    const round = this.#roundAt(key, event);
    this.focus.point(round === null ? null : { lane: key, round, place: null, row: null });
  }

  #pick(key, event) {
    const round = this.#roundAt(key, event);
    if (round === null) return;
    this.focus.choose({ lane: key, round }, this.#rows.get(key).current);
  }

  // The part of a lane that the canvas does not show yet: all of it after `draw`, or if a pass wrote more tokens than
  // any before.
  #drawRow(row, colour) {
    const { lane, track, canvas, end } = row;
    const most = Math.max(1, ...lane.rounds.slice(row.drawn).map((round) => round.committed_ids.length));
    if (row.drawn === 0 || most > row.most) this.#clear(row, most);
    const pen = canvas.getContext("2d");
    for (; row.drawn < lane.rounds.length; row.drawn++) this.#drawRound(pen, row, colour);
    end.style.left = `${this.#x(lane.duration) + 8}px`;
    end.textContent = `${lane.duration.toFixed(lane.duration < 10 ? 2 : 1)}\u00a0s`;
    const passes = Math.max(0, lane.rounds.length - 1);
    track.setAttribute(
      "aria-label",
      `${labelOf(lane.key)}: ${passes} ${lane.pieces ? "pieces of the answer" : "target passes"} in ${end.textContent}`,
    );
  }

  // An empty canvas with room for this many tokens below a pass. The first round, the prompt's, is not drawn.
  #clear(row, most) {
    const { track, canvas } = row;
    const cell = this.#scale * (most === 1 ? 4 : Math.max(2, Math.min(5, Math.floor(34 / most))));
    Object.assign(row, { drawn: 1, most, cell });
    const height = this.#scale * PASS + GAP + most * cell;
    const ratio = devicePixelRatio || 1;
    track.style.height = `${height}px`;
    const width = this.#width + ROOM;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    canvas.getContext("2d").scale(ratio, ratio);
  }

  #drawRound(pen, { lane, drawn: index, cell }, colour) {
    const round = lane.rounds[index];
    const high = this.#scale * PASS;
    const [from, to] = [lane.seconds[index - 1], lane.seconds[index]];
    const draft = Math.min(round.draft_seconds ?? 0, to - from);
    const check = round.verify_seconds ?? (round.draft === null ? 0 : to - from - draft);
    const block = (start, length, fill, gap = 1) => {
      pen.fillStyle = colour(fill);
      const wide = this.#x(start + length) - this.#x(start);
      pen.fillRect(this.#x(start), 0, Math.max(0.6, wide - (wide > 2.5 ? gap : 0)), high);
    };
    if (round.draft === null)
      block(from, to - from, "bar-rest"); // it does not report the times of its passes
    else {
      const guesses = round.draft.length;
      for (let at = 0; draft > 0 && at < guesses; at++)
        block(from + (draft * at) / guesses, draft / guesses, "bar-draft", 0.5);
      const target = lane.key === "speculative" ? "bar-verify" : "plain";
      block(from + draft, Math.min(check, to - from - draft), target);
    }
    const middle = this.#x(from + draft + Math.min(check, to - from - draft) / 2);
    const wide = Math.max(1.5, Math.min(7, this.#x(to) - this.#x(from) - 1.5));
    kindsOf(round).forEach((kind, place) => {
      const box = [middle - wide / 2, high + GAP + place * cell, wide, cell - 1];
      if (kind === "bonus") {
        pen.strokeStyle = colour("mark");
        pen.lineWidth = 1;
        pen.strokeRect(box[0] + 0.5, box[1] + 0.5, Math.max(0.5, box[2] - 1), Math.max(0.5, box[3] - 1));
      } else {
        pen.fillStyle = colour(CELLS[kind] ?? "bar-rest");
        pen.fillRect(box[0], box[1], box[2], box[3]);
      }
    });
  }
}

// The round that wrote the token at a place of the text.
function roundOf(lane, place) {
  if (place === null || place === undefined) return null;
  const found = lane.counts.findIndex((count) => count > place);
  return found < 0 ? null : found;
}

// The next of 1, 2, 5, 10, 20 ... that is not below a value.
function stepped(value) {
  if (!(value > 0)) return 0.1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((step) => step * power >= value) ?? 10) * power;
}
