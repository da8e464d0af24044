// Where the time of a lane goes: draft, verify and the rest, a bar a round, and the tokens that each round wrote.
import { colourOf, el, fold, loadPlotly, narrow, onLook } from "./dom.js";

export class Timing {
  #lane = null;
  #plotly = null;

  constructor(address) {
    this.words = el("p", "sd-timeWords");
    this.plot = el("div", "sd-plot");
    this.plot.setAttribute("role", "img");
    this.key = el(
      "ul",
      "sd-barKeys",
      "",
      [
        ["draft", "draft"],
        ["verify", "verify"],
        ["rest", "the rest"],
        ["wrote", "tokens written"],
      ].map(([name, text]) => el("li", `sd-barKey ${name}`, text)),
    );
    this.node = fold("sd-time", "Where the time goes", [this.words, this.key, this.plot]);
    this.node.addEventListener("toggle", () => this.#draw());
    this.address = address;
    onLook(this.plot, () => this.#draw());
    this.hide();
  }

  hide() {
    this.node.hidden = true;
  }

  open(lane, words) {
    this.#lane = lane;
    this.words.textContent = words ?? "";
    this.plot.setAttribute("aria-label", `Milliseconds and tokens of each round. ${words ?? ""}`);
    this.node.hidden = !lane || lane.rounds.length < 2;
    this.#draw();
  }

  async #draw() {
    if (!this.node.open || this.node.hidden || !this.#lane) return;
    this.#plotly ??= await loadPlotly(this.address);
    const colour = colourOf(this.plot);
    const lane = this.#lane;
    const rounds = lane.rounds.slice(1); // the prefill is not part of the decode time
    const before = lane.rounds.slice(0, -1);
    const whole = rounds.map((round, i) => (round.elapsed_seconds - before[i].elapsed_seconds) * 1000);
    const part = (name) => rounds.map((round) => (round[name] ?? 0) * 1000);
    const [draft, verify] = [part("draft_seconds"), part("verify_seconds")];
    const rest = whole.map((ms, i) => Math.max(0, ms - draft[i] - verify[i]));
    const x = rounds.map((round) => round.index);
    const bars = (name, y, fill, extra = {}) => ({
      type: "bar",
      name,
      x,
      y,
      marker: { color: colour(fill), ...extra },
      hoverinfo: "skip",
    });
    const small = narrow();
    const axis = {
      gridcolor: colour("grid"),
      linecolor: colour("axis"),
      zeroline: false,
      fixedrange: true,
      tickfont: { size: small ? 14 : 13 },
    };
    const title = (text) => ({ text, standoff: 8, font: { size: small ? 14 : 13 } });
    const traces = [
      bars("draft", draft, "bar-draft"),
      bars("verify", verify, "bar-verify"),
      bars("rest", rest, "bar-rest"),
      {
        type: "scatter",
        mode: "lines",
        name: "wrote",
        x,
        y: rounds.map((round) => round.committed_ids.length),
        yaxis: "y2",
        hoverinfo: "skip",
        line: { shape: "hvh", width: 2, color: colour("correction-mark") },
      },
    ];
    const layout = {
      width: this.plot.clientWidth,
      height: 320,
      margin: { l: 54, r: 12, t: 12, b: 50 },
      barmode: "stack",
      bargap: 0.15,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: false,
      dragmode: false,
      font: { family: getComputedStyle(this.plot).fontFamily, color: colour("muted") },
      xaxis: { ...axis, title: title("Round"), showgrid: false, anchor: "y2" },
      yaxis: { ...axis, title: title("Milliseconds"), domain: [0.42, 1], nticks: 4, rangemode: "tozero" },
      yaxis2: { ...axis, title: title("Tokens"), domain: [0, 0.3], nticks: 3, rangemode: "tozero" },
    };
    await this.#plotly.react(this.plot, traces, layout, { staticPlot: true });
  }
}
