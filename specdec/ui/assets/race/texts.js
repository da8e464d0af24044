// The texts of a race: plain and speculative side by side, in boxes of the same height. Below them is the legend, or
// the token under the pointer. Further lanes are in folds.
import { el, fold, onLook } from "../lib/dom.js";
import { exactnessOf } from "../lib/definitions.js";
import { labelOf } from "../lib/lanes.js";
import { isCode } from "../lib/sentences.js";
import { word } from "../lib/words.js";
import { Ribbon, legend } from "./ribbon.js";

const MAIN = ["generate", "speculative"];
const SHORT = 6; // lines of a text that fits into lower boxes, which leave room for the round below
const LEAST = 3; // the fewest lines of a box
const FEW = 64; // tokens; so many are mostly short, until the lines are known

const NAMES = { generate: "Plain generate", speculative: "Speculative" };
const SERVERS = { generate: "Plain server", speculative: "Speculative server" };

// Whether a text continues above its box, and below it.
function cue(body) {
  const half = lineOf(body) / 2;
  body.classList.toggle("before", body.scrollTop > half);
  body.classList.toggle("more", body.scrollTop + body.clientHeight < body.scrollHeight - half);
}

// The height of a line, in pixels.
const lineOf = (body) => Number.parseFloat(getComputedStyle(body.firstElementChild).lineHeight);

export class Texts {
  #boxes = new Map(); // lane key -> { ribbon, status, node, body }
  #race = null;
  #moment = null; // of a replay, in seconds; null: everything is visible
  #fitted = ""; // the look in which the boxes are as high as the complete texts need; empty until these are known
  #lines = 0; // that they need
  #again = false; // whether the boxes were fitted before, in another look or to another text

  /** @param {import("./focus.js").Focus} focus */
  constructor(focus) {
    this.focus = focus;
    focus.add(this);
    this.boxes = el("div", "sd-boxes");
    this.legend = legend();
    this.point = el("p", "sd-point");
    this.point.hidden = true;
    const misses = el("input");
    misses.type = "checkbox";
    misses.id = "sd-misses";
    const toggle = el("label", "sd-toggle", "", [misses, el("span", "", "Show guesses not kept")]);
    this.explained = el("div", "sd-explained", "", [this.legend, this.point]);
    this.node = el("section", "sd-texts", "", [this.boxes, el("div", "sd-under", "", [this.explained, toggle])]);
    this.node.setAttribute("aria-label", "Texts");
    this.others = el("div");
    misses.addEventListener("change", () => {
      for (const part of [this.node, this.others]) part.classList.toggle("with-misses", misses.checked);
      this.#refit();
      this.follow();
    });
    // Larger letters or a narrower box show less of a text.
    onLook(this.boxes, () => {
      if (this.#fitted && this.#look() !== this.#fitted) this.#refit();
      for (const { body } of this.#boxes.values()) if (body) cue(body);
    });
  }

  // A place for each lane of a race, in the order of the race.
  place(lanes, asked, onServers = false) {
    this.boxes.classList.toggle("short", asked <= FEW);
    this.#unfit();
    this.#again = false;
    this.#boxes = new Map();
    for (const lane of lanes) {
      const ribbon = new Ribbon(`${labelOf(lane)} text, token by token`, this.focus);
      const status = el("span", "sd-boxStatus");
      ribbon.waiting("This lane runs later, with the same prompt.");
      if (MAIN.includes(lane)) {
        const body = el("div", "sd-boxBody", "", [ribbon.node]);
        body.addEventListener("scroll", () => cue(body), { passive: true });
        const named = onServers ? word(`${lane}:server`, SERVERS[lane]) : word(lane, NAMES[lane]);
        const head = el("div", "sd-boxHead", "", [el("h2", "", "", [named]), status]);
        const server = el("p", "sd-boxServer"); // what the server told; hidden in other races
        server.hidden = !onServers;
        const node = el("div", `sd-box ${lane}`, "", [head, server, body]);
        this.#boxes.set(lane, { ribbon, status, server, node, body });
      } else this.#boxes.set(lane, { ribbon, status, node: fold("", `${labelOf(lane)} text`, [ribbon.node]) });
    }
    const of = (main) => [...this.#boxes].filter(([lane]) => MAIN.includes(lane) === main).map(([, box]) => box.node);
    this.boxes.replaceChildren(...of(true));
    this.others.replaceChildren(...of(false));
    this.light(null);
  }

  start(race, lane) {
    this.#race = race;
    this.node.classList.toggle("code", isCode(race.begin.settings.prompt ?? ""));
    const box = this.#boxes.get(lane.key);
    if (this.#fitted) [this.#fitted, this.#again] = ["", true]; // a computed text
    box?.ribbon.start(race, lane);
    box?.node.classList.remove("done", "winner", "computed");
    if (box?.server && lane.server) {
      const { model, engine, version, exact, ids } = lane.server;
      const said = [model, [engine, version].filter(Boolean).join(" "), exactnessOf(exact)];
      box.server.textContent =
        said.join(" \u00b7 ") + (ids ? "" : " It told no token ids: a token is a piece of text.");
      box.server.title = box.server.textContent; // its end may be cut
    }
    if (box?.body) box.body.scrollTop = 0;
  }

  didNotRun(lane) {
    this.#boxes.get(lane)?.ribbon.waiting("This lane did not run.");
  }

  grow() {
    for (const { ribbon } of this.#boxes.values()) ribbon.grow();
    this.#scroll();
  }

  // A moment of a replay, in seconds; null is the end, with everything visible.
  showUntil(seconds) {
    this.#moment = seconds;
    for (const { ribbon } of this.#boxes.values()) ribbon.showUntil(seconds);
    this.#fit();
    this.#scroll();
  }

  // Once the texts are complete, the boxes are as high as they need. A replay does not change that, and a computed text
  // makes them higher only.
  #fit() {
    if (this.#fitted || !this.#race?.verdict || (this.#again && this.#moment !== null)) return;
    const main = [...this.#boxes.values()].filter(({ body }) => body);
    const lines = Math.max(...main.map(({ ribbon, body }) => ribbon.node.offsetHeight / lineOf(body)));
    this.#lines = Math.max(this.#lines, LEAST, Math.ceil(lines - 0.5));
    this.boxes.classList.toggle("short", this.#lines <= SHORT);
    this.boxes.style.setProperty("--sd-needed", `${this.#lines}`);
    this.#fitted = this.#look();
    this.#again = false;
  }

  // Other letters, another width or more words need another height. It is measured while the texts are complete: the
  // guesses that a replay shows for a moment take lines too.
  #refit() {
    if (!this.#fitted) return;
    this.#unfit();
    this.#again = true;
    this.#fit();
  }

  #unfit() {
    this.#fitted = "";
    this.#lines = 0;
    this.boxes.style.removeProperty("--sd-needed");
  }

  // What the number of lines depends on.
  #look() {
    const { body } = [...this.#boxes.values()].find(({ body }) => body) ?? {};
    return body ? `${this.boxes.clientWidth} ${getComputedStyle(body.firstElementChild).fontSize}` : "";
  }

  #scroll() {
    if (this.#moment === null && this.#race?.verdict) this.#rewind();
    else this.follow();
  }

  // Complete texts are read from the beginning; after a long prompt, from its last line.
  #rewind() {
    for (const { ribbon, body } of this.#boxes.values()) {
      if (!body) continue;
      const written = ribbon.first?.offsetTop ?? 0;
      const line = lineOf(body);
      body.scrollTo(0, written > body.clientHeight / 2 ? line * (Math.floor(written / line) - 1) : 0);
      cue(body);
    }
  }

  // The text at the right of a lane's head: tokens, or its time. `done`: the lane is at its end.
  say(lane, words, done = false, winner = false) {
    const box = this.#boxes.get(lane);
    if (!box) return;
    if (box.status.textContent !== words) box.status.textContent = words;
    box.node.classList.toggle("done", done);
    box.node.classList.toggle("winner", winner);
  }

  // Marks a text that was computed and not measured.
  computed(lane, on) {
    this.#boxes.get(lane)?.node.classList.toggle("computed", on);
  }

  // Keeps the end of each text in view, inside its box.
  follow() {
    for (const { ribbon, body } of this.#boxes.values()) {
      const tip = body && ribbon.tip;
      if (!tip) continue;
      const below = tip.offsetTop + tip.offsetHeight - body.clientHeight;
      if (below > body.scrollTop || below < body.scrollTop - body.clientHeight / 2) {
        const line = lineOf(body);
        body.scrollTop = line * Math.max(0, Math.ceil(below / line)); // whole lines, so that none is cut
      }
      cue(body);
    }
  }

  light(at, byKey = false) {
    let words = null;
    for (const { ribbon } of this.#boxes.values()) {
      ribbon.light(at);
      words ??= ribbon.wordsAt(at);
    }
    this.legend.style.visibility = words ? "hidden" : ""; // it keeps its place
    this.point.hidden = !words;
    this.point.setAttribute("aria-live", byKey ? "polite" : "off"); // pointer movements are not read out
    if (words)
      this.point.replaceChildren(el("span", `sd-token ${words.kind}`, words.shown), el("span", "", words.rest));
    if (byKey) this.#keepInView();
  }

  // Keeps the lit tokens in view inside their boxes. The page does not move.
  #keepInView() {
    for (const { body } of this.#boxes.values()) {
      const lit = body?.querySelector(".lit");
      if (!lit) continue;
      if (lit.offsetTop < body.scrollTop) body.scrollTop = lit.offsetTop;
      else if (lit.offsetTop + lit.offsetHeight > body.scrollTop + body.clientHeight)
        body.scrollTop = lit.offsetTop + lit.offsetHeight - body.clientHeight;
    }
  }

  choose(at) {
    for (const { ribbon } of this.#boxes.values()) ribbon.choose(at);
    this.#keepInView();
  }
}
