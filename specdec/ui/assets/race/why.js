// Explains the outcome of a race: in words, in figures, and as steps from plain `generate` to speculative.
import { colourOf, el, escaped, fold, loadPlotly, narrow, onLook } from "../lib/dom.js";

export class Why {
  #steps = [];
  #plotly = null;

  // `facts` makes the list of figures.
  constructor(address, facts) {
    this.address = address;
    this.facts = facts;
    this.words = el("p", "sd-timeWords");
    this.plot = el("div", "sd-plot");
    this.plot.setAttribute("role", "img");
    this.figures = el("div");
    this.node = fold("sd-why", "Why", [this.words, this.plot, this.figures]);
    this.node.addEventListener("toggle", () => this.#draw());
    onLook(this.plot, () => this.#draw());
    this.hide();
  }

  hide() {
    this.node.hidden = true;
  }

  open(why) {
    this.node.hidden = !why;
    if (!why) return;
    this.node.firstChild.textContent = why.title;
    this.words.textContent = why.text;
    this.#steps = why.steps;
    this.plot.hidden = !why.steps.length;
    this.plot.setAttribute(
      "aria-label",
      `Milliseconds per token. ${why.steps.map(([name, seconds]) => `${name}: ${signed(seconds)}`).join(", ")}`,
    );
    this.figures.replaceChildren(...(why.figures.length ? [this.facts(why.figures)] : []));
    this.#draw();
  }

  async #draw() {
    if (!this.node.open || this.node.hidden || !this.#steps.length) return;
    this.#plotly ??= await loadPlotly(this.address);
    const colour = colourOf(this.plot);
    const small = narrow();
    const names = [...this.#steps.map(([name]) => escaped(name).replace(/^(.{5,14}) /, "$1<br>")), "Speculative"];
    const values = this.#steps.map(([, seconds]) => seconds * 1000);
    const total = values.reduce((sum, value) => sum + value, 0);
    const font = { size: 14 };
    const numbers = [
      ...this.#steps.map(([, seconds], at) => (at ? signed(seconds) : (seconds * 1000).toFixed(2))),
      total.toFixed(2),
    ];
    const trace = {
      type: "waterfall",
      orientation: small ? "h" : "v",
      hoverinfo: "skip",
      cliponaxis: false,
      textposition: small ? "none" : "outside",
      measure: ["absolute", ...Array(values.length - 1).fill("relative"), "total"],
      textfont: { ...font, color: colour("muted") },
      text: numbers,
      connector: { line: { color: colour("axis"), width: 1 } },
      totals: { marker: { color: colour("bar-rest") } },
      decreasing: { marker: { color: colour("bar-verify") } },
      increasing: { marker: { color: colour("correction-mark") } },
      ...(small ? { y: names, x: [...values, total] } : { x: names, y: [...values, total] }),
    };
    let end = 0;
    const right = [...values.map((value) => Math.max(end, (end += value))), total];
    // Right of every bar, because left of one a number would overlap the steps' names.
    const beside = {
      type: "scatter",
      mode: "text",
      x: right,
      y: names,
      text: numbers.map((number) => `\u00a0\u00a0${number}`),
      textposition: "middle right",
      textfont: trace.textfont,
      cliponaxis: false,
    };
    const axis = { gridcolor: colour("grid"), zeroline: false, fixedrange: true, tickfont: font, automargin: true };
    const steps = { ...axis, showgrid: false };
    const measured = { ...axis, title: { text: "Milliseconds per token", font }, rangemode: "tozero" };
    const layout = {
      width: this.plot.clientWidth,
      height: small ? 420 : 320,
      margin: { l: 10, r: small ? 56 : 30, t: 24, b: 10 },
      showlegend: false,
      dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(this.plot).fontFamily, color: colour("muted") },
      xaxis: small ? measured : steps,
      yaxis: small ? { ...steps, autorange: "reversed" } : measured,
    };
    await this.#plotly.react(this.plot, small ? [trace, beside] : [trace], layout, { staticPlot: true });
  }
}

const signed = (seconds) => `${seconds < 0 ? "\u2212" : "+"}${Math.abs(seconds * 1000).toFixed(2)}`;
