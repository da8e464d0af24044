// The live view: verdict, figures, chart, texts and what stands below them, drawn from one race after another.
import { Chart } from "./chart.js";
import { defineFigures } from "./definitions.js";
import { button, el, fold, narrow, reducedMotion } from "./dom.js";
import { LineReader } from "./lines.js";
import { runInAddress } from "./link.js";
import { defineLanes, labelOf } from "./lanes.js";
import { Race, readRecording } from "./race.js";
import { Replay } from "./replay.js";
import { Ribbon, legend } from "./ribbon.js";
import { RoundCard } from "./rounds.js";
import { Share } from "./share.js";
import { showRace } from "./shown.js";
import { Timing } from "./timing.js";
import { Why } from "./why.js";

const FIGURES = ["leaner passes", "speculation", "of guesses kept", "tokens identical"];
const STEPS = [
  ["Guess", "A small draft model writes the next few tokens. It is quick and often right."],
  ["Check", "The large target model reads all the guesses in one pass, which costs little more than one token."],
  ["Keep", "Guesses that the target agrees with stay. It replaces the first miss itself, so the result is its own."],
];

const MEASURED = ["run", "startup"]; // origins of a race that this page's server ran
const GREETING = ["startup", "recording"]; // of one that a visitor finds here; it makes way for all others

// What tests wait on, and what the page's buttons call.
window.specdec ??= {
  mounted: false,
  begun: 0,
  rounds: 0,
  lanesStarted: 0,
  lanesFinished: 0,
  verdicts: 0,
  errors: 0,
  running: false,
  replaying: false,
  begin() {},
  end() {},
  halt() {},
  pair: "", // that the server works with, as far as the page was told
  loaded(pair) {
    this.pair = pair;
  },
  share() {},
  run() {},
  codes() {},
  shown() {},
  go() {},
  rest() {},
};

// Resolves once the view is mounted: a button that is pressed before waits for it.
let mounted = () => {};
export const ready = new Promise((resolve) => {
  mounted = () => resolve(undefined);
});

export async function mount(element, props, watch, plotlyAddress, lanes, definitions) {
  defineLanes(lanes);
  defineFigures(definitions);
  const view = new View(element, plotlyAddress);
  mounted(); // the buttons have what they need; a link that cannot be read must not hold them back
  const reader = new LineReader();
  await view.openLink();
  const update = () => view.take(reader.read(props.value ?? ""), props.value ?? "");
  watch("value", update);
  update();
  window.specdec.mounted = true;
}

class View {
  #state = window.specdec;
  #race = null; // on show
  #next = null; // the one whose lines come; on show from its first lane on, so that a refusal loses nothing
  #wanted = null; // what the Again button is to run
  #shown = ""; // where the race on show is from: "", "run", "startup", "link" or "file"
  #ignored = false; // a start-up race that came when another was on show already
  #ribbons = new Map();
  #known = new Map(); // what each tab had found before its present measurement
  #halting = false;
  #pressed = 0;
  #ended = 0;

  constructor(root, plotlyAddress) {
    this.root = root;
    this.chart = new Chart(plotlyAddress, (seconds) => this.#pickMoment(seconds));
    this.card = new RoundCard((lane, index) => this.#markRound(lane, index));
    this.timing = new Timing(plotlyAddress);
    this.why = new Why(plotlyAddress, factList);
    this.replay = new Replay((seconds) => this.#showMoment(seconds));
    this.share = new Share((...file) => this.#openFile(...file));
    this.#build();
    Object.assign(this.#state, {
      begin: () => {
        this.#pressed += 1;
        this.#setRunning(true);
      },
      // Comes a moment after the verdict, perhaps when the next race was begun already. `said` is what the server says
      // of a race that it took off the line, `refused` what is shown where Gradio itself ended one.
      end: (said, refused) => {
        this.#ended = Math.min(this.#ended + 1, this.#pressed);
        if (this.#ended < this.#pressed) return;
        this.#setRunning(false);
        if (said) this.#say(said);
        if (refused) this.#showError(refused);
      },
      halt: () => this.#halt(),
      loaded: (pair) => {
        this.#state.pair = pair;
        this.#showNotes();
      },
      share: (answer) => this.share.take(answer.settings, answer.problem),
      run: () => this.share.shown,
      codes: (answer) => this.share.takeCodes(answer),
      shown: () => this.#wanted,
      // A tab's measurement begins and ends. What it found is read out; what stood there before is not.
      go: (name) => {
        swap(`sd-${name}-running`, true, `#sd-${name}-start`, `#sd-${name}-stop`);
        this.spoken.textContent = "";
        this.#known.set(name, findingOf(name));
      },
      rest: (name) => {
        swap(`sd-${name}-running`, false, `#sd-${name}-start`, `#sd-${name}-stop`);
        const found = findingOf(name);
        if (found !== this.#known.get(name)) this.spoken.textContent = found?.textContent ?? "";
      },
    });
    const queue = document.querySelector("#sd-waiting");
    if (queue)
      new MutationObserver(() => this.#sayAhead()).observe(queue, {
        childList: true,
        subtree: true,
        characterData: true,
      });
    document.querySelector("#sd-prompt textarea")?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!this.#state.running) document.querySelector("#sd-run").click();
    });
  }

  // New lines of a race that runs here; `text` is all of them.
  take(records, text) {
    this.#feed(records);
    if (this.#race?.verdict && this.#race === this.#next && records.length && !this.#ignored)
      this.share.offer(this.#race, () => text);
  }

  async openLink() {
    try {
      const records = await runInAddress();
      if (records) this.#open(records, "link", () => records.map((record) => JSON.stringify(record)).join("\n"));
    } catch (error) {
      // Above everything, and for as long as the address holds that link: a start-up race would cover it.
      const said = el("p", "sd-error sd-linkError", `The run in this link cannot be shown. ${error.message}`);
      said.setAttribute("role", "alert");
      document.querySelector("#sd-top").before(said);
    }
  }

  #openFile(name, text, size) {
    if (this.#state.running)
      return this.#showError(`${name} was not opened: a race is running. Open it when that has ended.`);
    try {
      if (!text && size) throw new Error(`It has ${size} bytes, more than this page takes.`);
      const records = readRecording(text);
      records[0].name = name;
      this.#open(records, "file", () => text);
      if (!reducedMotion()) this.replay.restart();
    } catch (error) {
      this.#showError(`${name} cannot be shown. ${error.message}`);
    }
  }

  // `text` gives the lines, should somebody want to keep them.
  #open(records, origin, text) {
    this.replay.hide();
    this.#feed(records.map((record) => (record.event === "begin" ? { ...record, origin } : record)));
    this.share.offer(this.#race, text);
  }

  #feed(records) {
    for (const record of records) {
      if (record.event === "begin") this.#ignored = GREETING.includes(record.origin) && this.#shown !== "";
      if (this.#ignored) continue;
      if (!["begin", "error"].includes(record.event)) this.#next.take(record);
      this.#handlers[record.event]?.(record);
    }
    if (!records.length || this.#ignored) return;
    for (const ribbon of this.#ribbons.values()) ribbon.grow();
    this.card.grow();
    this.chart.flush();
    this.#progress();
  }

  #handlers = {
    begin: (record) => {
      this.#next = new Race(record);
      this.#wait(false);
      this.errorNode.hidden = true;
      this.#state.begun += 1;
    },
    started: () => {
      this.#race = this.#next;
      if (this.#race.lanes.size === 1) this.#reset();
      this.chart.addLane(this.#race.lane);
      this.#ribbons.get(this.#race.lane.name)?.start(this.#race, this.#race.lane);
      if (this.#race.lane.name === "speculative") this.card.open(this.#race, this.#race.lane, 1);
      this.#state.lanesStarted += 1;
    },
    round: () => {
      if (this.#race.lane.name === "speculative" && this.#race.lane.rounds.length === 2) {
        this.card.open(this.#race, this.#race.lane, 1);
      }
      this.#state.rounds += 1;
    },
    finished: () => (this.#state.lanesFinished += 1),
    lane_end: (record) => {
      this.chart.endLane(record.lane, [record.name, record.duration]);
      this.spoken.textContent = record.spoken ?? "";
    },
    verdict: (record) => {
      this.#shown = this.#race.begin.origin;
      if (MEASURED.includes(this.#shown)) this.#state.pair = this.#race.begin.pair; // the header may not know yet
      this.#setRunning(false);
      this.#showRun();
      this.#showVerdict(record);
      showRace(this.#race);
      this.#state.verdicts += 1;
      this.replay.load(Math.max(0, ...[...this.#race.lanes.values()].map((lane) => lane.duration)));
      if (this.#shown === "run" && record.figures && !record.stopped && !reducedMotion()) this.replay.restart();
    },
    error: (record) => {
      if (this.#race === this.#next) this.headline.textContent = "The race did not end.";
      this.#setRunning(false);
      this.#showError(record.message);
      this.#state.errors += 1;
    },
  };

  // A new run begins: its lanes have their places and wait.
  #reset() {
    const { lanes } = this.#race.begin;
    this.root.classList.remove("empty", "stale");
    this.how.open = false;
    this.factor.hidden = this.warning.hidden = true;
    showRace(null);
    this.replay.hide();
    this.card.hide();
    this.timing.hide();
    this.why.hide();
    this.more.hidden = true;
    this.point.replaceChildren();
    this.notes.replaceChildren(el("span", "", "One lane after the other, on the same prompt and settings."));
    this.#showFigures(FIGURES.map((label) => ({ value: "\u2013", label })));
    this.#placeRibbons(lanes);
    this.chart.words = "Tokens written over seconds; the race is running.";
    this.chart.start(this.#race.asked);
    if (this.#state.running && narrow() && this.#race.runs.length === 1) {
      this.root.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
    }
  }

  // The speculative text stands open; every other lane's text has a fold of its own.
  #placeRibbons(lanes) {
    const pick = (lane, index) => this.#pickRound(lane, index);
    const point = ({ shown, kind, rest }, byKey) => {
      this.point.setAttribute("aria-live", byKey ? "polite" : "off"); // a pointer's way is not read out
      this.point.replaceChildren(el("span", `sd-token ${kind}`, shown), el("span", "", rest));
    };
    this.#ribbons = new Map(
      lanes.map((lane) => [lane, new Ribbon(`${labelOf(lane)} text, token by token`, point, pick)]),
    );
    for (const ribbon of this.#ribbons.values()) ribbon.waiting("Its turn comes later, on the same prompt.");
    const main = this.#ribbons.get("speculative");
    this.mainPlace.replaceChildren(...(main ? [main.node] : []));
    this.folds = new Map(
      lanes
        .filter((lane) => lane !== "speculative")
        .map((lane) => {
          const node = fold("", `${labelOf(lane)} text`, [this.#ribbons.get(lane).node]);
          node.open = lane === "generate";
          return [lane, node];
        }),
    );
    this.otherPlace.replaceChildren(...this.folds.values());
  }

  // The run that the verdict names, if it is not the one that was drawn as it came.
  #showRun() {
    for (const [lane, ribbon] of this.#ribbons) if (!this.#race.lanes.has(lane)) ribbon.waiting("Did not run.");
    if (this.#race.runs.length < 2) return;
    this.chart.start(this.#race.asked);
    for (const [name, lane] of this.#race.lanes) {
      this.#ribbons.get(name).start(this.#race, lane);
      this.chart.addLane(lane);
      if (lane.end) this.chart.endLane(name, [lane.end.name, lane.end.duration]);
    }
  }

  #progress() {
    if (!this.#race?.lane || this.#race !== this.#next || this.#race.verdict || this.#halting || !this.#state.running)
      return;
    const { runs } = this.#race.begin;
    const run = runs > 1 ? `Run ${this.#race.runs.length} of ${runs} \u00b7 ` : "";
    const lane = this.#race.lane;
    this.headline.textContent = `${run}${labelOf(lane.name)}: ${lane.tokens} of ${this.#race.asked}`;
  }

  #setRunning(running) {
    this.#state.running = running;
    this.#wait(running);
    this.#halting = false;
    if (running && this.#state.replaying) this.replay.skip();
    swap("sd-running", running, "#sd-run, .sd-again", "#sd-stop");
    // The old result dims until the first token of the new race, or comes back with an error.
    this.root.classList.toggle("stale", running);
  }

  // Says why nothing happens, if the race does not begin at once.
  #wait(waiting) {
    clearTimeout(this.timer);
    this.statusNode.hidden = true;
    if (!waiting) return;
    this.#sayAhead();
    this.timer = setTimeout(() => (this.statusNode.hidden = false), 800);
  }

  // What the server says of the queue, once it has said something.
  #sayAhead() {
    if (this.#halting) return;
    const ahead = document.querySelector("#sd-waiting")?.textContent.trim();
    this.statusNode.textContent = ahead ? `Waiting: ${ahead}` : "Waiting: the machine is busy.";
  }

  #halt() {
    this.#halting = true;
    if (this.#race?.lane && !this.#race.verdict) this.headline.textContent = "Stopping \u2026";
    else this.statusNode.textContent = "Stopping \u2026";
  }

  #say(words) {
    this.statusNode.textContent = words;
    this.statusNode.hidden = false;
  }

  #showError(message) {
    this.errorNode.textContent = message;
    this.errorNode.hidden = false;
    this.errorNode.scrollIntoView({ block: "nearest" });
  }

  #showVerdict(record) {
    this.factor.textContent = record.factor ?? "";
    this.factor.hidden = !record.factor;
    this.factor.classList.toggle("flat", !record.faster);
    const foreign = !MEASURED.includes(this.#race.begin.origin);
    const told = (words) => (foreign ? words.replaceAll(/ (here|on this machine)\b/g, "") : words);
    this.headline.textContent = told(record.sentence);
    this.warning.textContent = record.warning ?? "";
    this.warning.hidden = !record.warning;
    this.#showNotes();
    const lanes = this.#race.lanes;
    if (record.figures) {
      this.#showFigures(record.figures);
      const plain = this.folds.get("generate");
      plain.open = !record.same;
      if (record.same) plain.firstChild.textContent = "Plain text: the same, token for token";
      this.#showMore(record);
    }
    const end = lanes.get("speculative")?.end;
    if (end && record.factor) {
      this.chart.endLane("speculative", [end.name, `${end.duration} \u00b7 ${record.factor}`]);
      if (record.saved) this.chart.bracket(record.saved);
    }
    if (record.stopped && record.figures) this.#showCut(lanes);
    this.chart.words = told(record.chart ?? record.sentence);
    this.spoken.textContent = told(record.sentence);
    if (lanes.has("speculative")) {
      this.card.open(this.#race, lanes.get("speculative"), telling(lanes.get("speculative")));
      this.timing.open(lanes.get("speculative"), record.time);
      this.why.open(record.why && { ...record.why, text: told(record.why.text) });
    }
  }

  // A race cut short compares over the tokens both wrote.
  #showCut(lanes) {
    const plain = lanes.get("generate");
    const written = lanes.get("speculative").tokens;
    this.chart.cutAt(written);
    this.chart.endLane("generate", [
      labelOf("generate"),
      secondsOf(plain.seconds[plain.counts.findLastIndex((count) => count <= written)]),
    ]);
  }

  #showNotes() {
    const record = this.#race?.verdict;
    if (record)
      this.notes.replaceChildren(...this.#origin(record), ...record.notes.map((note) => el("span", "", note)));
  }

  // Runs what is on show once more, whatever the form says by now.
  #again(repeat) {
    if (this.#state.running) return;
    this.#wanted = { settings: this.#race.begin.settings, repeat };
    document.querySelector("#sd-again").click();
  }

  // Where the figures are from, how many runs they are of, and what can be done about it.
  #origin(record) {
    const { origin, at, pair, name } = this.#race.begin;
    const { cpu, gpu } = this.#race.lane.started.machine;
    const day = new Date(at * 1000);
    const time = day.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const runs = record.runs > 1 ? `median of ${record.runs} runs` : "1 run";
    const said = {
      run: `${runs[0].toUpperCase()}${runs.slice(1)} on this machine`,
      startup: `Measured on this machine at start-up, ${time} \u00b7 ${runs}`,
      recording: `A recording made on ${gpu ?? cpu}, ${day.toLocaleDateString()}, not measured here \u00b7 ${runs}`,
      link: `From a link, not measured here \u00b7 ${runs}`,
      file: `From the file ${name}, recorded ${day.toLocaleDateString()} ${time}, not measured here \u00b7 ${runs}`,
    }[origin];
    const parts = [el("strong", "", said)];
    const measured = MEASURED.includes(origin);
    const [words, repeat] = measured ? ["Repeat \u00d75", true] : ["Run it here", false];
    parts.push(button("sd-action small sd-again", words, () => this.#again(repeat)));
    const loaded = this.#state.pair;
    if (loaded && loaded !== pair) parts.push(el("span", "", `Made with ${pair}. Loaded: ${loaded}.`));
    return parts;
  }

  #showFigures(figures) {
    this.figures.replaceChildren(
      ...figures.map((figure) => el("div", "", "", [term(figure), el("dd", "", figure.value)])),
    );
  }

  #showMore(record) {
    this.more.hidden = !record.details;
    if (!record.details) return;
    const { columns, rows } = record.lanes;
    const head = columns.map(({ name, definition }) => {
      const cell = el("th", "", name);
      cell.scope = "col";
      if (definition) cell.title = definition;
      return cell;
    });
    const body = rows.map((row) =>
      el(
        "tr",
        "",
        "",
        row.map((value, at) => {
          const cell = el(at ? "td" : "th", "", value);
          if (!at) cell.scope = "row";
          cell.dataset.label = columns[at].name;
          return cell;
        }),
      ),
    );
    const table = el("table", "sd-table", "", [
      el("thead", "", "", [el("tr", "", "", head)]),
      el("tbody", "", "", body),
    ]);
    this.moreBody.replaceChildren(table, factList(record.details));
  }

  #showMoment(seconds) {
    this.#state.replaying = seconds !== null;
    for (const [name, ribbon] of this.#ribbons) {
      const lane = this.#race.lanes.get(name);
      if (lane) ribbon.showUntil(seconds === null ? Infinity : lane.roundsAt(seconds));
    }
    this.chart.showUntil(seconds);
    const counts = [...this.#race.lanes.values()].map((lane) => {
      const ended = seconds === null ? lane.rounds.length : lane.roundsAt(seconds);
      return `${labelOf(lane.name)} ${lane.counts[ended - 1] ?? 0}`;
    });
    this.replay.say(counts.join(" \u00b7 "));
  }

  #pickRound(lane, index) {
    const picked = this.#race.lanes.get(lane);
    if (!picked) return;
    this.card.open(this.#race, picked, index);
  }

  #pickMoment(seconds) {
    const lane = this.#race?.lanes.get("speculative");
    if (lane?.rounds.length) this.card.open(this.#race, lane, Math.min(lane.roundsAt(seconds), lane.rounds.length - 1));
  }

  #markRound(lane, index) {
    for (const [name, ribbon] of this.#ribbons) ribbon.markRound(name === lane ? index : -1);
    this.chart.markRound(lane, index);
  }

  #build() {
    this.errorNode = el("p", "sd-error");
    this.errorNode.setAttribute("role", "alert");
    this.errorNode.hidden = true;
    this.statusNode = el("p", "sd-status");
    this.statusNode.setAttribute("role", "status");
    this.statusNode.hidden = true;
    this.factor = el("div", "sd-factor");
    this.factor.setAttribute("aria-hidden", "true"); // the sentence says it
    this.headline = el("p", "sd-headline");
    this.warning = el("p", "sd-warning");
    this.notes = el("div", "sd-notes");
    const verdict = el("section", "sd-verdict", "", [
      this.factor,
      el("div", "", "", [this.headline, this.warning, this.notes]),
    ]);
    this.figures = el("dl", "sd-figures");
    this.spoken = el("p", "sd-spoken");
    this.spoken.setAttribute("aria-live", "polite");
    this.chart.words = "Tokens written over seconds; no race yet.";
    this.moreBody = el("div", "sd-more");
    this.more = fold("", "Details", [this.moreBody]);
    this.more.hidden = true;
    const result = el("div", "sd-result", "", [
      verdict,
      this.figures,
      el("div", "sd-columns", "", [el("div", "sd-left", "", [this.chart.node, this.replay.node]), this.#buildTexts()]),
      this.card.node,
      this.why.node,
      this.timing.node,
      this.more,
    ]);
    this.root.classList.add("empty");
    this.root.replaceChildren(this.errorNode, this.statusNode, result, this.#buildHow());
    (document.querySelector("main") ?? document.body).append(this.spoken); // heard from every tab
    document.querySelector("#sd-share .sd-sharePlace")?.replaceChildren(this.share.node);
  }

  #buildTexts() {
    this.point = el("p", "sd-point");
    const misses = el("input");
    misses.type = "checkbox";
    misses.id = "sd-misses";
    misses.addEventListener("change", () => this.root.classList.toggle("with-misses", misses.checked));
    const toggle = el("label", "sd-toggle", "", [misses, el("span", "", "Show rejected and discarded guesses")]);
    this.mainPlace = el("div");
    this.otherPlace = el("div");
    return el("div", "sd-texts", "", [
      el("h2", "", "Speculative text"),
      legend(),
      this.mainPlace,
      this.point,
      toggle,
      this.otherPlace,
    ]);
  }

  #buildHow() {
    const steps = STEPS.map(([name, text]) => el("li", "", "", [el("strong", "", name), el("span", "", text)]));
    this.how = fold("sd-how", "How it works", [el("ol", "", "", steps)]);
    this.how.open = true;
    return this.how;
  }
}

// What a tab's measurement found: its verdict, or its table's caption where it has none.
const findingOf = (name) => document.querySelector(`#sd-${name}-verdict .sd-headline, #sd-${name}-table caption`);

// Start and Stop change places: a keyboard that stood on the one stands on the other.
function swap(mark, running, start, stop) {
  const held = document.activeElement?.closest?.(running ? start : stop);
  document.body.classList.toggle(mark, running);
  if (held) document.querySelector(running ? stop : start)?.focus();
}

// The round to begin with: the first that has a miss, as it has most to tell.
function telling(lane) {
  const found = lane.rounds.findIndex((round) => round.draft?.some((token) => token.status === "rejected"));
  return found > 0 ? found : 1;
}

// A figure's name; where it has a definition, a tap or a click shows it, and so does a pointer that rests on it.
function term({ label, definition }) {
  if (!definition) return el("dt", "", label);
  const words = el("span", "sd-definition", definition);
  words.hidden = true;
  const name = button("sd-term", label, () => {
    words.hidden = !words.hidden;
    name.setAttribute("aria-expanded", String(!words.hidden));
  });
  name.title = definition;
  name.setAttribute("aria-expanded", "false");
  return el("dt", "", "", [name, words]);
}

const factList = (figures) =>
  el(
    "dl",
    "sd-facts",
    "",
    figures.map((figure) => el("div", "", "", [term(figure), el("dd", "", figure.value)])),
  );

const secondsOf = (value) => `${value.toFixed(value < 10 ? 2 : 1)}\u00a0s`;
