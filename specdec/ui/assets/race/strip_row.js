// One row of the strip: the passes of a lane as blocks, each as wide as its time, and the marks on them.
import { el } from "../lib/dom.js";
import { labelOf } from "../lib/lanes.js";
import { kindsOf, secondsOf } from "./race.js";

const PASS = 18; // pixels, height of a pass
const LOW = 12; // the same where its tokens are below it
const GAP = 2;
const CELLS = { accepted: "bar-draft", correction: "correction-mark", target: "bar-rest", unknown: "bar-rest" };

export class StripRow {
  lane = null;
  seconds = 0; // that fill the width
  #width = 0; // pixels for the passes
  #room = 0; // pixels right of them
  #scale = 1; // of all heights
  #drawn = 0; // rounds on the canvas
  #most = 0; // tokens of a pass for which the canvas has room
  #cell = 0; // pixels, height of a token; 0: none is drawn

  // `tokens`: whether the tokens of each pass are drawn below it.
  constructor(key, tokens = false) {
    this.key = key;
    this.tokens = tokens;
    this.canvas = el("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.cover = el("span", "sd-stripCover");
    this.end = el("span", "sd-stripEnd");
    this.marks = { lit: el("span", "sd-stripLit"), current: el("span", "sd-stripLit current") };
    const { lit, current } = this.marks;
    this.track = el("div", "sd-track-of", "", [this.canvas, this.cover, current, lit, this.end]);
    this.track.setAttribute("role", "img");
    lit.hidden = current.hidden = this.cover.hidden = true;
  }

  // All of the lane. `seconds` are `width` pixels wide.
  draw({ width, room, seconds, scale }, colour) {
    this.#width = width;
    this.#room = room;
    this.seconds = seconds;
    this.#scale = scale;
    this.#drawn = 0;
    this.grow(colour);
  }

  // The part of the lane that the canvas does not show yet: all of it after `draw`, or if a pass wrote more tokens than
  // any before.
  grow(colour) {
    const { lane } = this;
    if (!lane || (this.#drawn > 0 && this.#drawn === lane.rounds.length)) return;
    const most = Math.max(1, ...lane.rounds.slice(this.#drawn).map((round) => round.committed_ids.length));
    if (this.#drawn === 0 || most > this.#most) this.#clear(most);
    const pen = this.canvas.getContext("2d");
    for (; this.#drawn < lane.rounds.length; this.#drawn++) this.#drawRound(pen, this.#drawn, colour);
    this.end.style.left = `${this.x(lane.duration) + 8}px`;
    this.end.textContent = secondsOf(lane.duration);
    const passes = Math.max(0, lane.rounds.length - 1);
    this.track.setAttribute(
      "aria-label",
      `${labelOf(lane.key)}: ${passes} ${lane.pieces ? "pieces of the answer" : "target passes"} in ${this.end.textContent}`,
    );
  }

  // A moment of the replay, in seconds; null is the end.
  showUntil(seconds) {
    const { lane, cover, end } = this;
    if (!lane) return;
    cover.hidden = seconds === null;
    end.hidden = lane.open || (seconds !== null && seconds < lane.duration);
    if (seconds !== null) cover.style.clipPath = `inset(0 0 0 ${this.x(Math.min(seconds, lane.duration))}px)`;
  }

  // Puts the mark of this name at a round; null hides it.
  mark(name, round) {
    const { lane } = this;
    const node = this.marks[name];
    node.hidden = !lane || round === null || round < 1 || round >= lane.rounds.length;
    if (node.hidden) return;
    const from = this.x(lane.seconds[round - 1]);
    node.style.left = `${from - 1}px`;
    node.style.width = `${Math.max(3, this.x(lane.seconds[round]) - from + 2)}px`;
  }

  // The round under the pointer, or null.
  roundAt(event) {
    const { lane, track } = this;
    if (!lane || lane.rounds.length < 2) return null;
    const seconds = (event.clientX - track.getBoundingClientRect().left) / (this.x(1) || 1);
    return Math.max(1, Math.min(lane.roundsAt(seconds), lane.rounds.length - 1));
  }

  get #high() {
    return this.#scale * (this.tokens ? LOW : PASS);
  }

  x(seconds) {
    return this.seconds ? (seconds / this.seconds) * this.#width : 0;
  }

  // An empty canvas with room for this many tokens below a pass. The first round, the prompt's, is not drawn.
  #clear(most) {
    this.#drawn = 1;
    this.#most = most;
    this.#cell = this.tokens ? this.#scale * Math.max(2, Math.min(5, Math.floor(34 / most))) : 0;
    const height = this.#high + (this.tokens ? GAP + most * this.#cell : 0);
    const width = this.#width + this.#room;
    const ratio = devicePixelRatio || 1;
    const { canvas, track } = this;
    track.style.height = canvas.style.height = `${height}px`;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    canvas.getContext("2d").scale(ratio, ratio);
  }

  #drawRound(pen, index, colour) {
    const { lane } = this;
    const round = lane.rounds[index];
    const high = this.#high;
    const [from, to] = [lane.seconds[index - 1], lane.seconds[index]];
    const draft = Math.min(round.draft_seconds ?? 0, to - from);
    const check = round.verify_seconds ?? (round.draft === null ? 0 : to - from - draft);
    const block = (start, length, fill, gap = 1) => {
      pen.fillStyle = colour(fill);
      const wide = this.x(start + length) - this.x(start);
      pen.fillRect(this.x(start), 0, Math.max(0.6, wide - (wide > 2.5 ? gap : 0)), high);
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
    const cell = this.#cell;
    if (!cell) return;
    const middle = this.x(from + draft + Math.min(check, to - from - draft) / 2);
    const wide = Math.max(1.5, Math.min(7, this.x(to) - this.x(from) - 1.5));
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
