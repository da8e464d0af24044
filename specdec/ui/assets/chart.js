// Tokens against seconds, a step line a lane, each on its own clock, with words at the lines' ends.
import { colourOf, el, loadPlotly, narrow, onLook, reducedMotion, svg } from "./dom.js";

const MAIN = ["generate", "speculative"];
const DASHES = { assisted: "2px,3px", "gamma-0": "8px,3px,2px,3px", "prompt-lookup": "12px,3px", "draft-alone": "1px,5px" };
const STEPS = [1, 2, 5];

export class Chart {
  #plotly = null;
  #lanes = new Map(); // name -> Lane
  #sent = new Map();
  #asked = 1;
  #range = 0.1;
  #notes = [];
  #moment = null; // of a replay, in seconds; null is the end
  #mark = null;
  #wanted = null; // null, "tail" or "all"
  #drawing = false;

  // `onPick` is told the seconds at which the chart was clicked.
  constructor(address, onPick) {
    this.plot = el("div", "sd-plot");
    this.plot.setAttribute("role", "img");
    this.others = el("ul", "sd-others");
    this.node = el("div", "sd-chart", "", [this.plot, this.others]);
    this.plot.addEventListener("click", (event) => {
      const axis = this.plot._fullLayout?.xaxis;
      if (axis) onPick(axis.p2d(event.clientX - this.plot.getBoundingClientRect().left - axis._offset));
    });
    loadPlotly(address).then((plotly) => {
      this.#plotly = plotly;
      this.#draw();
      onLook(this.plot, () => this.#draw());
    });
  }

  set words(text) {
    this.plot.setAttribute("aria-label", text);
  }

  // An empty chart for so many tokens.
  start(asked) {
    this.#lanes = new Map();
    this.#sent = new Map();
    this.#asked = asked;
    this.#range = 0.1;
    this.#notes = [];
    this.#moment = this.#mark = null;
    this.others.replaceChildren();
    this.#draw();
  }

  addLane(lane) {
    this.#lanes.set(lane.name, lane);
    this.#draw();
  }

  // Sends what was added since the last call; with reduced motion a lane is drawn once, at its end.
  flush() {
    if (reducedMotion()) return;
    if (this.#names.some((name) => this.#lanes.get(name).rounds.length > (this.#sent.get(name) ?? 0))) this.#want("tail");
  }

  // The lane's own label; the x range freezes where the slowest lane ended, and grows only past it.
  endLane(name, lines) {
    this.#range = Math.max(...[...this.#lanes.values()].map((lane) => lane.duration), 1e-3);
    if (MAIN.includes(name)) {
      this.#notes = this.#notes.filter((note) => note.lane !== name).concat({ lane: name, lines: lines.map(escaped) });
    }
    else this.#legend(name, lines);
    this.#draw();
  }

  bracket(text) {
    this.#notes.push({ lane: "bracket", lines: [escaped(text)] });
    this.#draw();
  }

  // A moment of the replay: every line up to there. null is the end.
  showUntil(seconds) {
    this.#moment = seconds;
    this.#draw();
  }

  // A dot where a round of a lane ended.
  markRound(lane, index) {
    this.#mark = this.#lanes.has(lane) ? { lane, index } : null;
    this.#draw();
  }

  get #names() {
    return [...this.#lanes.keys()].sort((one, other) => MAIN.includes(one) - MAIN.includes(other));
  }

  #legend(name, lines) {
    const sample = svg("svg", { width: 34, height: 10, "aria-hidden": "true" });
    sample.append(svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": DASHES[name] }));
    this.others.append(el("li", "", "", [sample, el("span", "", lines.join(" "))]));
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
      // The texts that came with these points are laid out in one frame, the chart is drawn in the next.
      for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
      const all = this.#wanted === "all";
      this.#wanted = null;
      await (all ? this.#drawAll() : this.#drawTail()).catch((error) => console.error(error));
    }
    this.#drawing = false;
  }

  async #drawTail() {
    const names = this.#names;
    const fresh = names.filter((name) => this.#lanes.get(name).rounds.length > (this.#sent.get(name) ?? 0));
    if (!fresh.length) return;
    const tail = (axis) => fresh.map((name) => this.#lanes.get(name)[axis].slice(this.#sent.get(name) ?? 0));
    const update = { x: tail("seconds"), y: tail("counts") };
    fresh.forEach((name) => this.#sent.set(name, this.#lanes.get(name).rounds.length));
    await this.#plotly.extendTraces(this.plot, update, fresh.map((name) => names.indexOf(name)));
    if (this.#grow()) await this.#plotly.relayout(this.plot, { "xaxis.range": [0, this.#range] });
  }

  #grow() {
    const latest = Math.max(...[...this.#lanes.values()].map((lane) => lane.duration));
    if (latest <= this.#range) return false;
    const power = 10 ** Math.floor(Math.log10(latest));
    this.#range = (STEPS.find((step) => step * power >= latest) ?? 10) * power;
    return true;
  }

  async #drawAll() {
    const small = narrow();
    const colour = colourOf(this.plot);
    const space = this.#space(small);
    const axis = {
      gridcolor: colour("grid"), linecolor: colour("axis"), showline: true, zeroline: false, fixedrange: true,
      ticks: "", tickfont: { size: small ? 14 : 13 },
    };
    const title = (text) => ({ text, standoff: 10, font: { size: small ? 14 : 13 } });
    const clock = `Seconds after first token${small ? "<br>" : " "}(each lane's own clock)`;
    const layout = {
      width: this.plot.clientWidth, height: space.t + space.plot + space.b,
      margin: { l: space.l, r: space.r, t: space.t, b: space.b },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
      font: { family: getComputedStyle(this.plot).fontFamily, color: colour("muted") },
      xaxis: { ...axis, title: title(clock), range: [0, this.#range], nticks: small ? 4 : 7, showgrid: false },
      yaxis: { ...axis, title: title("Tokens written"), range: [0, this.#asked], nticks: 5 },
      annotations: this.#annotations(space, colour), shapes: this.#shapes(space, colour),
    };
    await this.#plotly.react(this.plot, this.#traces(colour), layout, { staticPlot: true });
  }

  #traces(colour) {
    const traces = this.#names.map((name) => {
      const lane = this.#lanes.get(name);
      this.#sent.set(name, lane.rounds.length);
      const count = this.#moment === null ? lane.rounds.length : lane.roundsAt(this.#moment);
      const [x, y] = [lane.seconds.slice(0, count), lane.counts.slice(0, count)];
      const line = { shape: "hv", width: 2, dash: DASHES[name] ?? "6px,3px", color: colour("plain") };
      if (name === "speculative") Object.assign(line, { width: 3, dash: "solid", color: colour("blue") });
      return { type: "scatter", mode: "lines", hoverinfo: "skip", name, x, y, line };
    });
    const marked = this.#moment === null && this.#mark ? this.#lanes.get(this.#mark.lane) : null;
    const [x, y] = marked ? [[marked.seconds[this.#mark.index]], [marked.counts[this.#mark.index]]] : [[], []];
    const marker = { size: 9, color: colour("blue"), line: { width: 2, color: colour("page") } };
    return [...traces, { type: "scatter", mode: "markers", hoverinfo: "skip", name: "round", x, y, marker, cliponaxis: false }];
  }

  // Pixels: margins that leave room for the labels, and the plot between them.
  #space(small) {
    const slower = this.#last() === "speculative";
    const space = small
      ? { l: 54, r: slower ? 104 : 62, t: 70, plot: 170, b: 64 } : { l: 56, r: slower ? 112 : 72, t: 56, plot: 204, b: 50 };
    return { ...space, small, width: this.plot.clientWidth - space.l - space.r };
  }

  #end(name) {
    const lane = this.#lanes.get(name);
    return { x: lane?.duration ?? 0, y: lane?.tokens ?? 0 };
  }

  // What stands at the lines' ends; in a replay only where a line has come to its end.
  #shown() {
    if (this.#moment === null) return this.#notes;
    return this.#notes.filter(({ lane }) => lane !== "bracket" && this.#end(lane).x <= this.#moment);
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
    return this.#shown().map(({ lane, lines }) => {
      const end = this.#end(lane === "bracket" ? "speculative" : lane);
      const note = { ...end, showarrow: false, yanchor: "bottom", bgcolor: colour("page"), borderpad: 1 };
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
    if (!this.#shown().some((note) => note.lane === "bracket")) return [];
    const [plain, spec] = [this.#end("generate"), this.#end("speculative")];
    const height = (pixels) => spec.y / this.#asked + pixels / space.plot;
    const common = { type: "line", xref: "x", yref: "paper", line: { width: 1.5, color: colour("ink") } };
    const tick = (x) => ({ ...common, x0: x, x1: x, y0: height(4), y1: height(12) });
    return [tick(spec.x), tick(plain.x), { ...common, x0: spec.x, x1: plain.x, y0: height(8), y1: height(8) }];
  }
}

// Plotly reads markup in its labels; a recording from elsewhere may hold some.
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
