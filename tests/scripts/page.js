// A page without a browser, for what the scripts draw for given lines: jsdom, with stand-ins for what it does not have
// (layout, canvas). Layout itself, and what a person does, is tested in Chromium.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const ASSETS = new URL("../../specdec/ui/assets/", import.meta.url);

const RACES = process.env.SPECDEC_RACES; // a folder that tests/test_scripts.py makes
if (!RACES) throw new Error("These tests need recorded races; run: python -m pytest tests/test_scripts.py");
const read = (name) => readFileSync(`${RACES}/${name}`, "utf-8");

// What the server gives the page: its table of lanes, and names, meanings and origins of figures.
const LANES = JSON.parse(read("lanes.json"));
const DEFINITIONS = JSON.parse(read("definitions.json"));

// The lines of the race that ships with the page, and those of a recorded one.
export const recorded = () => readFileSync(new URL("recorded.jsonl", ASSETS), "utf-8");
export const race = (name) => recordsOf(read(`${name}.jsonl`));
export const recordsOf = (text) =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
export const textOf = (records) => records.map((record) => `${JSON.stringify(record)}\n`).join("");

const { window } = new JSDOM(
  `<body><main><div id="sd-top"></div><div id="sd-tabs"><button role="tab" data-tab-id="race">Race</button></div>
   <div role="tabpanel"><div id="sd-line"><span class="sd-linePlace"></span><button id="sd-run">Run race</button>
   <button id="sd-stop">Stop</button></div><div id="sd-said"><div class="sd-saidPlace"></div></div>
   <div id="sd-ask"><span id="sd-prompt"><textarea></textarea></span><span id="sd-gamma"><input value="5" /></span>
   <span id="sd-tokens"><input value="64" /></span><span id="sd-temperature"><input value="0" /></span></div>
   <div id="sd-view"></div><div id="sd-how"></div></div></main></body>`,
  { url: "http://127.0.0.1/", pretendToBeVisual: true },
);

// --- what jsdom does not have ------------------------------------------------------------------------------------------

// A clock that a test turns. Frames and timers run when it is turned. `late` says how many milliseconds a frame is late
// (Infinity: it never comes), and with `stubborn` frames that were called off come all the same.
export const clock = { now: 0, late: () => 0, stubborn: false };
const turn = () => new Promise((resolve) => setImmediate(resolve));
const waiting = new Map(); // number -> { call, at }
let numbers = 0;
const wait = (call, at) => {
  waiting.set((numbers += 1), { call, at });
  return numbers;
};
window.requestAnimationFrame = (call) => wait(() => call(clock.now), clock.now + clock.late());
window.cancelAnimationFrame = (number) => clock.stubborn || waiting.delete(number);
globalThis.setTimeout = /** @type {any} */ ((call, milliseconds = 0) => wait(call, clock.now + milliseconds));
globalThis.clearTimeout = (number) => waiting.delete(number);
window.performance.now = () => clock.now;

// Lets this many milliseconds pass, frame by frame, until nothing waits for the next one.
export async function pass(milliseconds = 0, frame = 50) {
  for (let left = milliseconds; ; left -= frame) {
    await turn();
    await turn();
    clock.now += Math.max(0, Math.min(frame, left));
    const due = [...waiting].filter(([, { at }]) => at <= clock.now).sort((one, other) => one[1].at - other[1].at);
    for (const [number, { call }] of due) if (waiting.delete(number)) call();
    if (left <= 0) return turn();
  }
}

const ratio = { width: 600, height: 300 };
Object.defineProperties(window.HTMLElement.prototype, {
  clientWidth: { get: () => ratio.width },
  clientHeight: { get: () => ratio.height },
  // Whether it is visible: in the page's style, guesses that were not kept are hidden unless they are asked for.
  offsetParent: {
    get() {
      const missed =
        this.matches(".rejected, .discarded") && !this.closest(".with-misses") && this.closest(".sd-ribbon");
      return missed || this.closest("[hidden]") ? null : window.document.body;
    },
  },
});
window.HTMLElement.prototype.scrollTo = function () {};
window.HTMLElement.prototype.scrollIntoView = function () {};
// What was drawn on a canvas: [kind, colour, x, y, width, height] of each rectangle.
window.HTMLCanvasElement.prototype.getContext = function () {
  this.drawn ??= [];
  const drawn = this.drawn;
  return {
    scale: () => (drawn.length = 0),
    fillRect(...box) {
      drawn.push(["fill", this.fillStyle, ...box]);
    },
    strokeRect(...box) {
      drawn.push(["stroke", this.strokeStyle, ...box]);
    },
  };
};
window.ResizeObserver = class {
  observe() {}
};
// Everything that is watched is in view.
window.IntersectionObserver = class {
  constructor(call) {
    this.call = call;
  }
  observe(target) {
    setImmediate(() => this.call([{ target, isIntersecting: true }]));
  }
  disconnect() {}
};
let reduced = false;
window.matchMedia = (query) => ({ matches: reduced && query.includes("reduced-motion") });
export const reduceMotion = (on) => (reduced = on);

Object.assign(globalThis, {
  window,
  document: window.document,
  location: window.location,
  history: window.history,
  sessionStorage: window.sessionStorage,
  localStorage: window.localStorage,
  addEventListener: window.addEventListener.bind(window),
  innerHeight: 900,
  innerWidth: 1440,
  devicePixelRatio: 1,
  navigator: window.navigator,
  scrollX: 0,
  scrollY: 0,
  ResizeObserver: window.ResizeObserver,
  IntersectionObserver: window.IntersectionObserver,
  MutationObserver: window.MutationObserver,
  Event: window.Event,
  CustomEvent: window.CustomEvent,
  EventTarget: window.EventTarget,
  Node: window.Node,
  HTMLElement: window.HTMLElement,
  getComputedStyle: () => ({ getPropertyValue: (name) => name }), // a colour is its name
  matchMedia: (query) => window.matchMedia(query),
  requestAnimationFrame: (call) => window.requestAnimationFrame(call),
  cancelAnimationFrame: (number) => window.cancelAnimationFrame(number),
});
Object.defineProperty(globalThis, "performance", { value: window.performance });

// --- the page ----------------------------------------------------------------------------------------------------------

const live = await import(new URL("live.js", ASSETS).href);
export const { state } = await import(new URL("lib/state.js", ASSETS).href);

let update = () => {};
const props = { value: "" };
export const view = window.document.querySelector("#sd-view");
const mounting = live.mount(
  view,
  props,
  (_, call) => (update = call),
  LANES,
  DEFINITIONS,
  () => {},
);

// Gives the page the lines of a race, as the server does, and skips its replay unless it is asked to play.
export async function show(text, play = false) {
  await mounting;
  props.value = text;
  update();
  if (!play && state.replaying) click('[aria-label="Skip to the end"]');
  await pass();
}

let number = 1000;
// The same, as a race that ran here after a press of Run.
export async function showRun(records, play = false) {
  const [begin, ...rest] = structuredClone(records);
  await show(textOf([{ ...begin, origin: "run", number: (number += 1) }, ...rest]), play);
}

// The first element for a selector, or the one at a place among all; text of elements; what a person does.
export const all = (selector) => [...window.document.querySelectorAll(selector)];
export const one = (selector, at = 0) => all(selector).at(at);
export const words = (selector) => one(selector)?.textContent ?? "";
export const texts = (selector) => all(selector).map((node) => node.textContent);

const node = (of) => (typeof of === "string" ? one(of) : of);
export const click = (of) => node(of).click();
export const send = (of, name, more = {}) =>
  node(of).dispatchEvent(Object.assign(new window.Event(name, { bubbles: true, cancelable: true }), more));
export const key = (of, name) => send(of, "keydown", { key: name });
export const point = (of) => send(of, of.matches?.("tr") ? "pointerenter" : "pointerover");
export const leave = (of) => send(of, "pointerleave");

// What the chart of the race shows, in the units of its axes: its lines, texts, and the ends of its axes.
export function chart() {
  const number = (node, name) => Number(node.getAttribute(name));
  const [left, top, bottom, right] = one(".sd-chart .sd-axis")
    .getAttribute("d")
    .match(/[\d.]+/g)
    .map(Number);
  const marks = all(".sd-chart .sd-tick").map((node) => [
    Number(node.textContent),
    number(node, "x"),
    number(node, "y"),
  ]);
  const across = marks.filter(([, x]) => x >= left).at(-1);
  const up = marks.filter(([, x]) => x < left).at(-1);
  const second = (x) => ((x - left) / (across[1] - left)) * across[0];
  const token = (y) => ((bottom - y) / (bottom + 5 - up[2])) * up[0];
  const lines = all(".sd-chart .sd-line").map((node) => {
    const steps = [...node.getAttribute("d").matchAll(/[MH]([\d.]+)[,V]([\d.]+)/g)];
    const [x, y] = [steps.map((step) => second(Number(step[1]))), steps.map((step) => token(Number(step[2])))];
    return { name: node.getAttribute("class").split(" ")[1], x, y: y.map(Math.round) };
  });
  const labels = texts(".sd-chart .sd-label");
  const shapes = all(".sd-chart .sd-sign").map((node) => node.getAttribute("d"));
  return { lines, labels, shapes, titles: texts(".sd-chart .sd-axisTitle"), range: [second(right), token(top)] };
}

// Mounts the tab How it works, once.
export async function mountHow() {
  const how = await import(new URL("explain/how.js", ASSETS).href);
  how.mount(one("#sd-how"));
}

// Drags the draft length in the form's line.
export async function drag(gamma) {
  one("#sd-line-gamma").value = String(gamma);
  send("#sd-line-gamma", "input");
  await pass(200);
}
