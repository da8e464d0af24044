// Tokens against seconds, a step line a lane, each on its own clock, with words at the lines' ends.
import { narrow, reducedMotion } from "./dom.js";

const LANES = ["generate", "speculative"];
const STEPS = [1, 2, 5];

export class Chart {
  #plotly = null;
  #points;
  #sent;
  #asked = 1;
  #range = 0.1;
  #notes = [];
  #wanted = null; // null, "tail" or "all"
  #drawing = false;

  constructor(node, address) {
    this.node = node;
    this.#clear();
    loadScript(address).then(() => {
      this.#plotly = window.Plotly;
      this.#draw();
      new MutationObserver(() => this.#draw()).observe(document.body, { attributeFilter: ["class"] });
      let width = node.clientWidth;
      new ResizeObserver(() => {
        if (node.clientWidth === width) return;
        width = node.clientWidth;
        this.#draw();
      }).observe(node);
    });
  }

  start(asked) {
    this.#clear();
    this.#asked = asked;
    this.#draw();
  }

  add(lane, seconds, tokens) {
    this.#points[lane].x.push(seconds);
    this.#points[lane].y.push(tokens);
  }

  // Sends what was added since the last call; with reduced motion a lane is drawn once, at its end.
  flush() {
    if (!reducedMotion() && LANES.some((lane) => this.#points[lane].x.length > this.#sent[lane])) this.#want("tail");
  }

  // The lane's own label; the x range freezes where the slowest lane ended, and grows only past it.
  endLane(lane, lines) {
    this.#range = Math.max(...LANES.map((name) => this.#points[name].x.at(-1) ?? 0), 1e-3);
    this.#notes = this.#notes.filter((note) => note.lane !== lane).concat({ lane, lines });
    this.#draw();
  }

  bracket(text) {
    this.#notes.push({ lane: "bracket", lines: [text] });
    this.#draw();
  }

  #clear() {
    this.#points = Object.fromEntries(LANES.map((lane) => [lane, { x: [], y: [] }]));
    this.#sent = Object.fromEntries(LANES.map((lane) => [lane, 0]));
    this.#range = 0.1;
    this.#notes = [];
  }

  #draw() {
    this.#want("all");
  }

  // One drawing at a time, at most one a frame: on a slow machine frames are left out, never queued.
  async #want(what) {
    if (this.#wanted !== "all") this.#wanted = what;
    if (this.#drawing || !this.#plotly) return;
    this.#drawing = true;
    while (this.#wanted) {
      await new Promise(requestAnimationFrame);
      const all = this.#wanted === "all";
      this.#wanted = null;
      await (all ? this.#drawAll() : this.#drawTail()).catch((error) => console.error(error));
    }
    this.#drawing = false;
  }

  async #drawTail() {
    const fresh = LANES.filter((lane) => this.#points[lane].x.length > this.#sent[lane]);
    if (!fresh.length) return;
    const tail = (axis) => fresh.map((lane) => this.#points[lane][axis].slice(this.#sent[lane]));
    const update = { x: tail("x"), y: tail("y") };
    fresh.forEach((lane) => (this.#sent[lane] = this.#points[lane].x.length));
    await this.#plotly.extendTraces(this.node, update, fresh.map((lane) => LANES.indexOf(lane)));
    if (this.#grow()) await this.#plotly.relayout(this.node, { "xaxis.range": [0, this.#range] });
  }

  #grow() {
    const latest = Math.max(...LANES.map((lane) => this.#points[lane].x.at(-1) ?? 0));
    if (latest <= this.#range) return false;
    const power = 10 ** Math.floor(Math.log10(latest));
    this.#range = (STEPS.find((step) => step * power >= latest) ?? 10) * power;
    return true;
  }

  async #drawAll() {
    const small = narrow();
    const style = getComputedStyle(this.node);
    const colour = (name) => style.getPropertyValue(`--sd-${name}`).trim();
    const space = this.#space(small);
    LANES.forEach((lane) => (this.#sent[lane] = this.#points[lane].x.length));
    const copy = (lane) => ({ x: [...this.#points[lane].x], y: [...this.#points[lane].y] });
    const line = { type: "scatter", mode: "lines", hoverinfo: "skip" };
    const traces = [
      { ...line, ...copy("generate"), line: { shape: "hv", width: 2, dash: "6px,3px", color: colour("plain") } },
      { ...line, ...copy("speculative"), line: { shape: "hv", width: 3, color: colour("blue") } },
    ];
    const axis = {
      gridcolor: colour("grid"), linecolor: colour("axis"), showline: true, zeroline: false, fixedrange: true,
      ticks: "", tickfont: { size: small ? 14 : 13 },
    };
    const title = (text) => ({ text, standoff: 10, font: { size: small ? 14 : 13 } });
    const clock = `Seconds after first token${small ? "<br>" : " "}(each lane's own clock)`;
    const layout = {
      width: this.node.clientWidth, height: space.t + space.plot + space.b,
      margin: { l: space.l, r: space.r, t: space.t, b: space.b },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
      font: { family: style.fontFamily, color: colour("muted") },
      xaxis: { ...axis, title: title(clock), range: [0, this.#range], nticks: small ? 4 : 7, showgrid: false },
      yaxis: { ...axis, title: title("Tokens written"), range: [0, this.#asked], nticks: 5 },
      annotations: this.#annotations(space, colour), shapes: this.#shapes(space, colour),
    };
    await this.#plotly.react(this.node, traces, layout, { displayModeBar: false, responsive: false });
  }

  // Pixels: margins that leave room for the labels, and the plot between them.
  #space(small) {
    const slower = this.#last() === "speculative";
    const space = small
      ? { l: 54, r: slower ? 104 : 62, t: 70, plot: 170, b: 64 } : { l: 56, r: slower ? 112 : 72, t: 56, plot: 204, b: 50 };
    return { ...space, small, width: this.node.clientWidth - space.l - space.r };
  }

  #end(lane) {
    const { x, y } = this.#points[lane];
    return { x: x.at(-1) ?? 0, y: y.at(-1) ?? 0 };
  }

  // Of the lanes that have ended, the one that took longest: its label stands in the right margin.
  #last() {
    const ended = this.#notes.filter((note) => note.lane !== "bracket").map((note) => note.lane);
    return ended.sort((one, other) => this.#end(other).x - this.#end(one).x)[0];
  }

  #annotations(space, colour) {
    const pixels = (seconds) => (seconds / this.#range) * space.width;
    const last = this.#last();
    const gap = pixels(Math.abs(this.#end("generate").x - this.#end("speculative").x));
    return this.#notes.map(({ lane, lines }) => {
      const end = this.#end(lane === "bracket" ? "speculative" : lane);
      const note = { ...end, showarrow: false, yanchor: "bottom" };
      if (lane === "bracket") {
        const middle = (end.x + this.#end("generate").x) / 2;
        // Where the gap is too narrow for its words, they go above the neighbour's label.
        const yshift = gap > 100 ? 12 : space.small ? 46 : 30;
        return { ...note, x: middle, text: lines[0], yshift, font: { size: 14, color: colour("ink") } };
      }
      const font = { size: 14, color: colour(lane === "generate" ? "plain" : "blue") };
      const text = (join) => (lane === "generate" ? lines.join(join) : `<b>${lines.join(join)}</b>`);
      if (lane === last) {
        return { ...note, text: text("<br>"), yanchor: "middle", xanchor: "left", xshift: 8, align: "left", font };
      }
      const left = pixels(end.x) + space.l;
      const wide = !space.small && left > 190;
      const anchor = left > 104 ? { xanchor: "right", align: "right" } : { xanchor: "left", align: "left" };
      return { ...note, ...anchor, text: text(wide ? " " : "<br>"), xshift: left > 104 ? -6 : 0, yshift: 6, font };
    });
  }

  // The bracket stands above the plot, where a shape is only let out on the paper's own scale.
  #shapes(space, colour) {
    if (!this.#notes.some((note) => note.lane === "bracket")) return [];
    const [plain, spec] = [this.#end("generate"), this.#end("speculative")];
    const height = (pixels) => spec.y / this.#asked + pixels / space.plot;
    const common = { type: "line", xref: "x", yref: "paper", line: { width: 1.5, color: colour("ink") } };
    const tick = (x) => ({ ...common, x0: x, x1: x, y0: height(4), y1: height(12) });
    return [tick(spec.x), tick(plain.x), { ...common, x0: spec.x, x1: plain.x, y0: height(8), y1: height(8) }];
  }
}

function loadScript(address) {
  return new Promise((resolve, reject) => {
    if (window.Plotly) return resolve();
    const script = document.createElement("script");
    script.src = address;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
}
