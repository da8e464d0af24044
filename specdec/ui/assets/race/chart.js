// Tokens against seconds: a step line for each lane, from its own start, with labels at the ends.
import { colourOf, el, escaped, loadPlotly, narrow, nextFrame, onLook, reducedMotion, svg } from "../lib/dom.js";
import { labelOf, laneOf } from "../lib/lanes.js";

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

// The next of 1, 2, 5, 10, 20 ... that is not below a value.
const rounded = (value) => {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((step) => step * power >= value) ?? 10) * power;
};

// About how many pixels the longest of some bold lines takes in a label.
const widthOf = (lines) => 7.5 * Math.max(...lines.map((line) => line.length)) + 10;

export class Chart {
  #plotly = null;
  #lanes = new Map(); // key -> Lane
  #asked = 1; // tokens
  #top = 1; // of the y axis
  #range = 0.1;
  #notes = [];
  #moment = null; // of a replay, in seconds; null is the end
  #cut = Infinity; // tokens over which the lanes are compared
  #wanted = false;
  #drawing = false;
  #keyed = ""; // the texts of the legend

  /** @param {import("./focus.js").Focus} focus */
  constructor(address, focus) {
    this.plot = el("div", "sd-plot");
    this.plot.setAttribute("role", "img");
    // Dots on the lines, drawn above Plotly, so that they follow the pointer without a new drawing.
    this.lit = el("span", "sd-dot");
    this.current = el("span", "sd-dot current");
    this.lit.hidden = this.current.hidden = true;
    this.key = el("ul", "sd-chartKey"); // of the further lanes: the ends of their lines are too close for labels
    this.node = el("div", "sd-chart", "", [this.plot, this.lit, this.current, this.key]);
    focus.add(this);
    this.plot.addEventListener("pointermove", (event) => focus.point(this.#roundAt(event)));
    this.plot.addEventListener("pointerleave", () => focus.point(null));
    this.plot.addEventListener("click", (event) => {
      const at = this.#roundAt(event);
      if (at) focus.choose(at, this.plot);
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
    const axes = this.plot._fullLayout;
    const there = lane && axes?.xaxis && at.round < this.#count(lane);
    dot.hidden = !there;
    if (!there) return;
    const { xaxis, yaxis } = axes;
    dot.style.left = `${xaxis._offset + xaxis.l2p(lane.seconds[at.round])}px`;
    dot.style.top = `${yaxis._offset + yaxis.l2p(lane.counts[at.round])}px`;
  }

  // The round nearest to the pointer, on the nearest line.
  #roundAt(event) {
    const axes = this.plot._fullLayout;
    if (!axes?.xaxis || !this.#lanes.size) return null;
    const box = this.plot.getBoundingClientRect();
    const seconds = axes.xaxis.p2d(event.clientX - box.left - axes.xaxis._offset);
    const tokens = axes.yaxis.p2d(event.clientY - box.top - axes.yaxis._offset);
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

  // One drawing at a time, and no drawing for at least two thirds of the time: a slow machine skips frames and queues
  // none.
  async #draw() {
    this.#wanted = true;
    if (this.#drawing || !this.#plotly) return;
    this.#drawing = true;
    for (let took = 0; this.#wanted;) {
      await new Promise((resolve) => setTimeout(resolve, 2 * took));
      // The texts of these points are laid out in one frame, and the chart is drawn in the next.
      for (let frame = 0; frame < 2; frame++) await new Promise(nextFrame);
      this.#wanted = false;
      const began = performance.now();
      await this.#drawAll().catch((error) => console.error(error));
      took = performance.now() - began;
    }
    this.#drawing = false;
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

  async #drawAll() {
    this.#grow();
    const small = narrow();
    const colour = colourOf(this.plot);
    const space = this.#space(small);
    const axis = {
      gridcolor: colour("grid"),
      linecolor: colour("axis"),
      showline: true,
      zeroline: false,
      fixedrange: true,
      ticks: "",
      tickfont: { size: small ? 14 : 13 },
    };
    const title = (text) => ({ text, standoff: 10, font: { size: small ? 14 : 13 } });
    const clock = `Seconds after first token${small ? "<br>" : " "}(each lane's own clock)`;
    const layout = {
      width: this.plot.clientWidth,
      height: space.t + space.plot + space.b,
      margin: { l: space.l, r: space.r, t: space.t, b: space.b },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: false,
      dragmode: false,
      font: { family: getComputedStyle(this.plot).fontFamily, color: colour("muted") },
      xaxis: { ...axis, title: title(clock), range: [0, this.#range], nticks: small ? 4 : 7, showgrid: false },
      yaxis: { ...axis, title: title("Tokens written"), range: [0, this.#top], nticks: 5 },
      annotations: this.#annotations(space, colour),
      shapes: this.#shapes(space, colour),
    };
    await this.#plotly.react(this.plot, this.#traces(colour), layout, { staticPlot: true });
    this.#writeKey();
    this.#mark(this.lit, this.pointed);
    this.#mark(this.current, this.chosen);
  }

  #writeKey() {
    const lanes = this.#keys.filter((key) => !MAIN.includes(key));
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

  #traces(colour) {
    const dots = (x, y, marker) => ({
      type: "scatter",
      mode: "markers",
      hoverinfo: "skip",
      x,
      y,
      marker,
      cliponaxis: false,
    });
    const lines = this.#keys.map((key) => {
      const lane = this.#lanes.get(key);
      const count = this.#count(lane);
      const line =
        key === "speculative"
          ? { width: 3, color: colour("blue") }
          : // The others are alike in colour: dashes and the sign at the line's end, which the legend repeats, part them.
            { width: key === "generate" ? 2 : 1.5, dash: laneOf(key)?.dash, color: colour("plain") };
      const [x, y] = [lane.seconds.slice(0, count), lane.counts.slice(0, count)];
      return { type: "scatter", mode: "lines", hoverinfo: "skip", name: key, x, y, line: { shape: "hv", ...line } };
    });
    const ended = this.#keys.filter((key) => !MAIN.includes(key) && this.#lanes.get(key).finished && this.#there(key));
    const ends = ended.map((key) => this.#end(key));
    const signs = dots(
      ends.map(({ x }) => x),
      ends.map(({ y }) => y),
      {
        symbol: ended.map(signOf),
        size: 9,
        color: colour("plain"),
        line: { width: 1.5, color: colour("page") },
      },
    );
    return [...lines, signs];
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

  // Pixels: the margins for the labels, and the plot between them.
  #space(small) {
    const slower = this.#last() === "speculative";
    const space = small
      ? { l: 54, r: slower ? 104 : 62, t: 70, plot: 170, b: 64 }
      : { l: 56, r: slower ? 112 : 72, t: 68, plot: 196, b: 50 };
    return { ...space, small, width: this.plot.clientWidth - space.l - space.r };
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

  #annotations(space, colour) {
    const pixels = (seconds) => (seconds / this.#range) * space.width;
    const font = (lane) => ({ size: 14, color: colour(lane === "generate" ? "plain" : "blue") });
    const common = { showarrow: false, yanchor: "bottom", borderpad: 1 };
    const ended = this.#ended();
    // The name of a growing line is at its tip.
    const growing = MAIN.filter((lane) => this.#lanes.has(lane) && !ended.some((note) => note.lane === lane)).map(
      (lane) => {
        const tip = this.#end(lane, this.#count(this.#lanes.get(lane)));
        const plain = lane === "generate";
        // If the plain line is to the right of the speculative tip, that tip's name is on its left, if it fits.
        const right = plain || pixels(tip.x) < 96;
        return {
          ...common,
          ...tip,
          text: plain ? labelOf(lane) : `<b>${labelOf(lane)}</b>`,
          font: font(lane),
          bgcolor: colour("page"),
          xanchor: right ? "left" : "right",
          xshift: right ? 7 : -7,
          yanchor: plain ? "top" : "bottom",
          yshift: plain ? -2 : 4,
        };
      },
    );
    const last = this.#last();
    const finished = ended
      .filter(({ lane }) => MAIN.includes(lane))
      .map(({ lane, lines }) => {
        const end = this.#end(lane);
        const said = lines.map(escaped);
        const note = { ...common, ...end, bgcolor: colour("page"), font: font(lane) };
        const text = (join) => (lane === "generate" ? said.join(join) : `<b>${said.join(join)}</b>`);
        if (lane === last) {
          return { ...note, text: text("<br>"), xanchor: "left", xshift: 6, yshift: 6, align: "left" };
        }
        const left = pixels(end.x) + space.l;
        const wide = !space.small && left > widthOf([lines.join(" ")]);
        const fits = left > widthOf(lines);
        const anchor = fits ? { xanchor: "right", align: "right" } : { xanchor: "left", align: "left" };
        return { ...note, ...anchor, text: text(wide ? " " : "<br>"), xshift: fits ? -6 : 0, yshift: 6 };
      });
    return [
      ...growing,
      ...finished,
      ...this.#saved(space, pixels, { ...common, bgcolor: colour("page"), font: { size: 14, color: colour("ink") } }),
    ];
  }

  // The words of the bracket: above its middle or, if a label of a line is there, above that label.
  #saved(space, pixels, common) {
    const bracket = this.#bracket(space);
    if (!bracket) return [];
    const [plain, spec] = [this.#end("generate"), this.#end("speculative")];
    const free = this.#ended()
      .filter(({ lane }) => MAIN.includes(lane) && lane !== this.#last())
      .every(({ lane, lines }) => pixels(this.#end(lane).x) + space.l > widthOf(lines));
    const yshift = free && pixels(Math.abs(plain.x - spec.x)) > 100 ? 12 : 46;
    return [{ ...common, x: (plain.x + spec.x) / 2, y: spec.y, text: escaped(bracket.lines[0]), yshift }];
  }

  // The bracket is above the plot, where Plotly draws shapes only on the paper's own scale.
  #shapes(space, colour) {
    if (!this.#bracket(space)) return [];
    const [plain, spec] = [this.#end("generate"), this.#end("speculative")];
    const height = (pixels) => spec.y / this.#top + pixels / space.plot;
    const common = { type: "line", xref: "x", yref: "paper", line: { width: 1.5, color: colour("ink") } };
    const tick = (x) => ({ ...common, x0: x, x1: x, y0: height(4), y1: height(12) });
    return [tick(spec.x), tick(plain.x), { ...common, x0: spec.x, x1: plain.x, y0: height(8), y1: height(8) }];
  }
}
