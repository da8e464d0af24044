// The passes of each lane, true to scale: a block is as wide as its pass took. The last row shows the passes of the
// speculative lane again, enlarged, with the tokens that each of them gave.
import { colourOf, el, onLook, scaleOf } from "../lib/dom.js";
import { labelOf, laneOrder } from "../lib/lanes.js";
import { word } from "../lib/words.js";
import { nameOfWider } from "./race.js";
import { StripRow } from "./strip_row.js";

const SHORTEST = 0.1; // seconds of an axis
const AHEAD = 1.2; // an axis is by so much longer than a lane that runs will be
const ROOM = 74; // pixels right of the longest lane, for its time
const OURS = "speculative";
const SHORT = { generate: "Plain", assisted: "Assisted", [OURS]: "Speculative" };

const TOKENS = { correction: "correction", bonus: "bonus" };
const KEY = { draft: "draft pass", verify: "target pass", accepted: "below it: guess kept", ...TOKENS };
const ON_SERVERS = { verify: "round of the server, drafting included", accepted: "below it: guess kept", ...TOKENS };

export class Strip {
  #rows = []; // of StripRow, in the order of the page
  #near = null; // the row of the speculative lane alone
  #moment = null;
  #marked = { lit: null, current: null };
  #asked = 0;
  #seconds = 0; // of the axis
  #drawn = 0; // the width of the latest drawing

  /** @param {import("./focus.js").Focus} focus */
  constructor(focus) {
    this.focus = focus;
    focus.add(this);
    this.rows = el("div", "sd-stripRows");
    this.key = el("ul");
    this.words = el("span", "sd-stripWords");
    this.node = el("section", "sd-strip", "", [this.rows]);
    this.foot = el("div", "sd-stripFoot", "", [this.key, this.words]);
    this.wider = el("span"); // names the last row
    this.fan = el("span", "sd-stripFan"); // from the lane to its wider row
    this.#name(false);
    this.node.setAttribute("aria-label", "Passes, true to scale");
    onLook(this.rows, () => this.draw());
  }

  // `asked`: the new tokens of a lane that is not cut short.
  place(lanes, asked, onServers = false) {
    this.#name(onServers);
    this.#asked = asked;
    this.#seconds = 0;
    this.#moment = null;
    this.#marked = { lit: null, current: null };
    this.words.textContent = this.wider.textContent = "";
    const sorted = [...lanes].sort((one, other) => laneOrder(one) - laneOrder(other));
    const rows = sorted.map((key) => new StripRow(key));
    this.#near = lanes.includes(OURS) ? new StripRow(OURS, true) : null;
    this.#rows = this.#near ? [...rows, this.#near] : rows;
    for (const row of this.#rows) {
      row.track.addEventListener("pointermove", (event) => this.#point(row, event));
      row.track.addEventListener("pointerleave", () => this.focus.point(null));
      row.track.addEventListener("click", (event) => this.#pick(row, event));
    }
    const nodes = rows.map(({ key, track }) =>
      el("div", `sd-stripRow ${key.replace(":", "-")}`, "", [
        el("span", "", "", [word(key, SHORT[key] ?? labelOf(key))]),
        track,
      ]),
    );
    if (this.#near) {
      const { track } = this.#near;
      track.append(this.fan);
      nodes.push(el("div", `sd-stripRow ${OURS} near`, "", [this.wider, track]));
    }
    this.rows.replaceChildren(...nodes);
  }

  // The legend. A server tells no times of its passes.
  #name(onServers) {
    const kinds = Object.entries(onServers ? ON_SERVERS : KEY);
    this.key.replaceChildren(...kinds.map(([name, words]) => el("li", `sd-stripKey ${name}`, words)));
  }

  start(lane) {
    for (const row of this.#rows) if (row.key === lane.key) row.lane = lane;
    this.draw();
  }

  // The present lanes. The axis is as long as the longest of them needs.
  draw() {
    this.#seconds = this.#axis();
    this.#drawn = this.rows.clientWidth;
    const width = (this.#rows[0]?.track.clientWidth ?? 0) - ROOM;
    const colour = colourOf(this.rows);
    for (const row of this.#rows) {
      const seconds = row === this.#near ? this.#ownAxis() : this.#seconds;
      row.draw({ width, room: ROOM, seconds, scale: scaleOf() }, colour);
    }
    this.#widen(width);
    this.showUntil(this.#moment);
    for (const name of Object.keys(this.#marked)) this.#mark(name, this.#marked[name]);
  }

  // Rounds were added. Only they are drawn, unless the scale has changed.
  grow() {
    const changed = this.#axis() !== this.#seconds || (this.#near && this.#ownAxis() !== this.#near.seconds);
    if (changed || this.rows.clientWidth !== this.#drawn) return this.draw();
    const colour = colourOf(this.rows);
    for (const row of this.#rows) row.grow(colour);
    this.showUntil(this.#moment);
  }

  #axis() {
    const lanes = this.#rows.map(({ lane }) => lane);
    return lengthOf(lanes, this.#asked, this.#seconds);
  }

  // The seconds of the row that shows the speculative lane alone.
  #ownAxis() {
    return lengthOf([this.#near.lane], this.#asked, this.#near.seconds);
  }

  // Connects the lane to its row on a scale of its own.
  #widen(width) {
    const own = this.#near?.lane && this.#ownAxis();
    const times = own ? this.#seconds / own : 1;
    this.wider.textContent = nameOfWider(times);
    this.fan.hidden = !own;
    this.fan.style.width = `${width}px`;
    this.fan.style.clipPath = `polygon(0 0, ${100 / times}% 0, 100% 100%, 0 100%)`;
  }

  // A moment of the replay; null is the end.
  showUntil(seconds) {
    this.#moment = seconds;
    if (this.rows.clientWidth !== this.#drawn) return this.draw();
    for (const row of this.#rows) row.showUntil(seconds);
  }

  light(at) {
    this.#mark("lit", at);
  }

  choose(at) {
    this.#mark("current", at);
  }

  #mark(name, at) {
    this.#marked[name] = at;
    for (const row of this.#rows)
      row.mark(name, at && row.lane ? (row.key === at.lane ? at.round : roundOf(row.lane, at.place)) : null);
  }

  #point(row, event) {
    const round = row.roundAt(event);
    this.focus.point(round === null ? null : { lane: row.key, round, place: null, row: null });
  }

  #pick(row, event) {
    const round = row.roundAt(event);
    if (round !== null) this.focus.choose({ lane: row.key, round }, row.marks.current);
  }
}

// Seconds of an axis for some lanes, of which one may run. That one will take as long as all its tokens do at its speed so
// far, and the axis has room for that, so that no block shrinks while it grows. `before`: the axis so far, which stays
// while it fits.
export function lengthOf(lanes, asked, before) {
  const present = lanes.filter(Boolean);
  const ended = Math.max(0, ...present.filter(({ open }) => !open).map(({ duration }) => duration));
  const running = present.filter(({ open }) => open);
  if (!running.length) return ended;
  const expected = Math.max(
    ...running.map(({ duration, tokens }) => duration * Math.max(1, asked / Math.max(1, tokens))),
  );
  const needed = Math.max(ended, expected);
  if (needed <= before && needed > before / 2) return before;
  return ended >= expected ? ended || SHORTEST : AHEAD * expected;
}

// The round that wrote the token at a place of the text.
function roundOf(lane, place) {
  if (place === null || place === undefined) return null;
  const found = lane.counts.findIndex((count) => count > place);
  return found < 0 ? null : found;
}
