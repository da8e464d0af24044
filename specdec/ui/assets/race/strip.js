// The passes of each lane, true to scale: a block is as wide as its pass took. The last row shows the passes of the
// speculative lane again, enlarged, with the tokens that each of them gave.
import { colourOf, el, onLook, scaleOf } from "../lib/dom.js";
import { labelOf, laneOrder } from "../lib/lanes.js";
import { word } from "../lib/words.js";
import { nameOfWider } from "./race.js";
import { StripRow } from "./strip_row.js";

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
  #seconds = 0; // of the longest lane
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

  place(lanes, onServers = false) {
    this.#name(onServers);
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
    this.#seconds = lengthOf(this.#rows.map(({ lane }) => lane));
    this.#drawn = this.rows.clientWidth;
    const width = (this.#rows[0]?.track.clientWidth ?? 0) - ROOM;
    const colour = colourOf(this.rows);
    for (const row of this.#rows) {
      const seconds = row === this.#near ? lengthOf([row.lane]) : this.#seconds;
      row.draw({ width, room: ROOM, seconds, scale: scaleOf() }, colour);
    }
    this.#widen(width);
    this.showUntil(this.#moment);
    for (const name of Object.keys(this.#marked)) this.#mark(name, this.#marked[name]);
  }

  // Rounds were added. Only they are drawn, unless the scale has changed.
  grow() {
    const near = this.#near && lengthOf([this.#near.lane]);
    const changed = lengthOf(this.#rows.map(({ lane }) => lane)) !== this.#seconds || near !== this.#near?.seconds;
    if (changed || this.rows.clientWidth !== this.#drawn) return this.draw();
    const colour = colourOf(this.rows);
    for (const row of this.#rows) row.grow(colour);
    this.showUntil(this.#moment);
  }

  // Connects the lane to its row on a scale of its own.
  #widen(width) {
    const own = this.#near?.lane && lengthOf([this.#near.lane]);
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

// Seconds of an axis for some lanes. While one of them runs they grow in steps, so that the blocks do not shrink at
// every token.
function lengthOf(lanes) {
  const present = lanes.filter(Boolean);
  const longest = Math.max(0, ...present.map((lane) => lane.duration));
  return present.some((lane) => lane.open) ? stepped(longest) : longest;
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
