// The live view: verdict, figures, chart and the two texts, drawn from the lines of one race after another.
import { Chart } from "./chart.js";
import { el, narrow, reducedMotion } from "./dom.js";
import { LineReader, bytesOf } from "./lines.js";
import { Ribbon, legend } from "./ribbon.js";

const LANE_NAMES = { generate: "Plain", speculative: "Speculative" };
const FIGURES = [
  "tokens/s, plain \u2192 speculative", "acceptance: guesses kept, of those tested", "tokens a target pass",
  "tokens the same, counted from the start",
];
const STEPS = [
  ["Guess", "A small draft model writes the next few tokens. It is quick and often right."],
  ["Check", "The large target model reads all the guesses in one pass, which costs little more than one token."],
  ["Keep", "Guesses that the target agrees with stay. It replaces the first miss itself, so the result is its own."],
];

// What tests wait on, and what the page's buttons call.
window.specdec ??= {
  mounted: false, begun: 0, rounds: 0, lanesStarted: 0, lanesFinished: 0, verdicts: 0, errors: 0, running: false,
  begin() {}, end() {}, halt() {},
};

export function mount(element, props, watch, plotlyAddress) {
  const view = new View(element, plotlyAddress);
  const reader = new LineReader();
  const update = () => view.take(reader.read(props.value ?? ""));
  watch("value", update);
  update();
  window.specdec.mounted = true;
}

class View {
  #state = window.specdec;
  #bytes = new Map();
  #ribbons;
  #lane = null;
  #asked = 0;
  #firstSeconds = 0;
  #begin = {};
  #labels = {};
  #halting = false;
  #pressed = 0;
  #ended = 0;

  constructor(root, plotlyAddress) {
    this.root = root;
    this.#build();
    this.chart = new Chart(this.chartNode, plotlyAddress);
    Object.assign(this.#state, {
      begin: () => {
        this.#pressed += 1;
        this.#setRunning(true);
      },
      // Comes a moment after the verdict, perhaps when the next race was begun already.
      end: () => {
        this.#ended += 1;
        if (this.#ended === this.#pressed) this.#setRunning(false);
      },
      halt: () => this.#halt(),
    });
    document.querySelector("#sd-prompt textarea")?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!this.#state.running) document.querySelector("#sd-run").click();
    });
  }

  take(records) {
    for (const record of records) {
      for (const [id, text] of Object.entries(record.tokens ?? {})) this.#bytes.set(Number(id), bytesOf(text));
      this.#handlers[record.event]?.(record);
    }
    if (records.length) this.#progress();
    this.chart.flush();
  }

  #handlers = {
    begin: (record) => {
      this.#begin = record;
      this.#lane = null;
      this.#wait(false);
      this.errorNode.hidden = true;
      this.#state.begun += 1;
    },
    started: (record) => {
      if (this.#lane === null) this.#reset(record);
      this.#lane = record.lane;
      this.#ribbons[record.lane].start(record.prompt_ids);
      this.#state.lanesStarted += 1;
    },
    round: (record) => {
      const ribbon = this.#ribbons[this.#lane];
      if (record.index === 0) this.#firstSeconds = record.elapsed_seconds;
      ribbon.add(record);
      this.chart.add(this.#lane, record.elapsed_seconds - this.#firstSeconds, ribbon.tokens);
      this.#state.rounds += 1;
    },
    finished: () => (this.#state.lanesFinished += 1),
    lane_end: (record) => {
      this.#labels[record.lane] = record;
      this.chart.endLane(record.lane, [record.name, record.duration]);
      this.spoken.textContent = record.spoken;
    },
    verdict: (record) => {
      for (const ribbon of Object.values(this.#ribbons)) if (!ribbon.rounds) ribbon.waiting("Did not run.");
      this.#lane = null;
      this.#setRunning(false);
      this.#showVerdict(record);
      this.#state.verdicts += 1;
    },
    error: (record) => {
      if (this.#lane !== null) this.headline.textContent = "The race did not end.";
      this.#lane = null;
      this.#setRunning(false);
      this.errorNode.textContent = record.message;
      this.errorNode.hidden = false;
      this.#state.errors += 1;
    },
  };

  #reset(started) {
    this.#asked = started.params.max_new_tokens;
    this.#labels = {};
    this.root.classList.remove("empty", "stale");
    this.how.open = false;
    this.factor.hidden = true;
    this.notes.replaceChildren(el("span", "", "First plain, then speculative, on the same prompt and settings."));
    this.#showFigures(FIGURES.map((label) => ({ value: "\u2013", label })));
    for (const [lane, ribbon] of Object.entries(this.#ribbons)) {
      ribbon.start([]);
      ribbon.waiting(lane === "speculative" ? "Runs after the plain lane, on the same prompt." : "");
    }
    this.plainTitle.textContent = "Plain text";
    this.plainFold.open = true;
    this.chartNode.setAttribute("aria-label", "Tokens written over seconds; the race is running.");
    this.chart.start(this.#asked);
    if (this.#state.running && narrow()) {
      this.root.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
    }
  }

  #progress() {
    if (this.#lane === null || this.#halting) return;
    this.headline.textContent = `${LANE_NAMES[this.#lane]}: ${this.#ribbons[this.#lane].tokens} of ${this.#asked}`;
  }

  #setRunning(running) {
    const button = document.activeElement?.closest?.("#sd-run, #sd-stop");
    this.#state.running = running;
    this.#wait(running);
    this.#halting = false;
    document.body.classList.toggle("sd-running", running);
    // The old result dims until the first token of the new race, or comes back with an error.
    this.root.classList.toggle("stale", running);
    // Run and Stop change places: the keyboard stays where it was.
    if (button) document.querySelector(running ? "#sd-stop" : "#sd-run")?.focus();
  }

  // Says why nothing happens, if the race does not begin at once.
  #wait(waiting) {
    clearTimeout(this.timer);
    this.statusNode.hidden = true;
    if (waiting) this.timer = setTimeout(() => (this.statusNode.hidden = false), 800);
  }

  #halt() {
    this.#halting = true;
    if (this.#lane !== null) this.headline.textContent = "Stopping \u2026";
  }

  #showVerdict(record) {
    const time = new Date(this.#begin.at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const origin = this.#begin.origin === "startup"
      ? `Measured on this machine at start-up, ${time} \u00b7 1 run` : "1 run on this machine";
    this.factor.textContent = record.factor ?? "";
    this.factor.hidden = !record.factor;
    this.factor.classList.toggle("flat", !record.faster);
    this.headline.textContent = record.sentence;
    this.notes.replaceChildren(el("strong", "", origin), ...record.notes.map((note) => el("span", "", note)));
    if (record.figures) {
      this.#showFigures(record.figures);
      this.plainFold.open = !record.same;
      if (record.same) this.plainTitle.textContent = "Plain text: the same, token for token";
    }
    const end = this.#labels.speculative ?? record.end;
    if (end && record.factor) {
      this.chart.endLane("speculative", [end.name, `${end.duration} \u00b7 ${record.factor}`]);
      if (record.saved) this.chart.bracket(record.saved);
    }
    this.chartNode.setAttribute("aria-label", record.chart ?? record.sentence);
    this.spoken.textContent = record.sentence;
  }

  #showFigures(figures) {
    this.figures.replaceChildren(...figures.map(({ value, label }) =>
      el("div", "", "", [el("dd", "", value), el("dt", "", label)])));
  }

  #build() {
    this.errorNode = el("p", "sd-error");
    this.errorNode.setAttribute("role", "alert");
    this.errorNode.hidden = true;
    this.statusNode = el("p", "sd-status", "Waiting: another race is running here.");
    this.statusNode.setAttribute("role", "status");
    this.statusNode.hidden = true;
    this.factor = el("div", "sd-factor");
    this.factor.setAttribute("aria-hidden", "true"); // the sentence says it
    this.headline = el("p", "sd-headline");
    this.notes = el("p", "sd-notes");
    const verdict = el("section", "sd-verdict", "", [this.factor, el("div", "", "", [this.headline, this.notes])]);
    this.figures = el("dl", "sd-figures");
    this.spoken = el("p", "sd-spoken");
    this.spoken.setAttribute("aria-live", "polite");
    this.chartNode = el("div", "sd-chart");
    this.chartNode.setAttribute("role", "img");
    this.chartNode.setAttribute("aria-label", "Tokens written over seconds; no race yet.");
    const result = el("div", "sd-result", "", [
      verdict, this.figures, el("div", "sd-columns", "", [this.chartNode, this.#buildTexts()])]);
    this.root.classList.add("empty");
    this.root.replaceChildren(this.errorNode, this.statusNode, this.spoken, result, this.#buildHow());
  }

  #buildTexts() {
    const point = el("p", "sd-point");
    const onPoint = ({ shown, kind, rest }) =>
      point.replaceChildren(el("span", `sd-token ${kind}`, shown), el("span", "", rest));
    this.#ribbons = {
      speculative: new Ribbon("Speculative text, token by token", this.#bytes, onPoint),
      generate: new Ribbon("Plain text, token by token", this.#bytes),
    };
    const misses = el("input");
    misses.type = "checkbox";
    misses.id = "sd-misses";
    misses.addEventListener("change", () => this.root.classList.toggle("with-misses", misses.checked));
    const toggle = el("label", "sd-toggle", "", [misses, el("span", "", "Show rejected and discarded guesses")]);
    this.plainTitle = el("summary", "", "Plain text");
    this.plainFold = el("details", "sd-fold", "", [this.plainTitle, this.#ribbons.generate.node]);
    return el("div", "sd-texts", "", [
      el("h2", "", "Speculative text"), legend(), this.#ribbons.speculative.node, point, toggle, this.plainFold]);
  }

  #buildHow() {
    const steps = STEPS.map(([name, text]) => el("li", "", "", [el("strong", "", name), el("span", "", text)]));
    this.how = el("details", "sd-fold sd-how", "", [el("summary", "", "How it works"), el("ol", "", "", steps)]);
    this.how.open = true;
    return this.how;
  }
}
