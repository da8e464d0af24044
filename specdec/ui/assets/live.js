// The live view: verdict, texts, strip, chart, round card and folds, drawn from one race after another.
import { Chart } from "./chart.js";
import { defineFigures } from "./definitions.js";
import { el, fold, reducedMotion } from "./dom.js";
import { factList, laneTable } from "./figures.js";
import { Focus } from "./focus.js";
import { FormLine } from "./form.js";
import { laneAt, whatIfOf } from "./gamma.js";
import { LineReader } from "./lines.js";
import { defineLanes, labelOf } from "./lanes.js";
import { Measurements, swap } from "./measurements.js";
import { Race, readRecording } from "./race.js";
import { Replay } from "./replay.js";
import { RoundCard } from "./rounds.js";
import { Share } from "./share.js";
import { showRace } from "./shown.js";
import { state } from "./state.js";
import { Strip } from "./strip.js";
import { Texts } from "./texts.js";
import { MEASURED, VerdictPanel, told } from "./verdict.js";
import { follow } from "./visit.js";
import { Why } from "./why.js";

const GREETING = ["startup", "recording"]; // origins of a race that a visitor finds here; it makes way for all others
const MAIN = ["generate", "speculative"];

// Resolves once the view is mounted: a button that is pressed before waits for it.
let mounted = () => {};
export const ready = new Promise((resolve) => {
  mounted = () => resolve(undefined);
});

export async function mount(element, props, watch, plotlyAddress, lanes, definitions, again) {
  defineLanes(lanes);
  defineFigures(definitions);
  const view = new View(element, plotlyAddress, again);
  mounted(); // the buttons have what they need; a link that cannot be read must not hold them back
  const reader = new LineReader();
  await view.openLink();
  const update = () => view.take(reader.read(props.value ?? ""), props.value ?? "");
  watch("value", update);
  update();
  state.mounted = true;
}

class View {
  #race = null; // on show
  #next = null; // the one whose lines come; on show from its first lane on, so that a refusal loses nothing
  #lanes = new Map(); // on show: those of the race, the speculative one perhaps computed for another draft length
  #wanted = null; // what the Again button is to run
  #ignored = false; // a greeting that came when another race was on show already
  #waiting = null; // a greeting that comes on show once the replay of the recording has ended
  #halting = false;
  #edited = false; // whether the form was open as Run was pressed
  #pressed = 0;
  #ended = 0;

  // `again` has the server run what `window.specdec.shown()` says.
  constructor(root, plotlyAddress, again) {
    this.root = root;
    this.again = again;
    this.focus = new Focus();
    this.verdict = new VerdictPanel((repeat) => this.#again(repeat));
    this.texts = new Texts(this.focus);
    this.strip = new Strip(this.focus);
    this.chart = new Chart(plotlyAddress, this.focus);
    this.card = new RoundCard(this.focus);
    this.why = new Why(plotlyAddress, factList);
    this.replay = new Replay(
      (seconds) => this.#showMoment(seconds),
      () => this.#rested(),
    );
    this.share = new Share((...file) => this.#openFile(...file));
    this.measurements = new Measurements();
    this.#build();
    this.form = new FormLine((gamma) => this.#dragged(gamma));
    document.querySelector("#sd-line .sd-linePlace")?.replaceChildren(this.form.node);
    this.#answer();
    this.#listen();
  }

  // What the page's listeners call.
  #answer() {
    Object.assign(state, {
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
        state.pair = pair;
        if (this.#race?.verdict) this.verdict.origin(this.#race, pair);
      },
      shown: () => this.#wanted,
      asked: () => this.form.read(),
      go: (name) => this.measurements.go(name),
      rest: (name) => this.measurements.rest(name),
    });
  }

  #listen() {
    const queue = document.querySelector("#sd-waiting");
    const heard = { childList: true, subtree: true, characterData: true };
    if (queue) new MutationObserver(() => this.#sayAhead()).observe(queue, heard);
    document.querySelector("#sd-prompt textarea")?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!state.running) document.querySelector("#sd-run").click();
    });
    document.addEventListener("click", (event) => {
      if (event.target.closest?.(".sd-changePair")) document.body.classList.toggle("sd-changing");
    });
  }

  // New lines of a race that runs here; `text` is all of them.
  take(records, text) {
    const [first] = records;
    // The start-up race takes the recording's place, but not in the midst of its replay.
    if (first?.origin === "startup" && state.origin === "recording" && this.replay.playing) {
      this.#waiting = () => this.#takeNow(records, text);
      return;
    }
    this.#takeNow(records, text);
  }

  #takeNow(records, text) {
    const greeted = state.origin !== "";
    this.#feed(records);
    if (!this.#race?.verdict || this.#race !== this.#next || !records.length || this.#ignored) return;
    this.share.offer(this.#race, () => text);
    if (!greeted && GREETING.includes(state.origin)) this.#play();
  }

  // Plays the race on show, unless less motion is asked for; in a tab that nobody sees, once somebody does.
  #play() {
    if (reducedMotion()) return;
    if (!document.hidden) return this.replay.restart();
    const race = this.#race;
    const seen = () => race === this.#race && this.replay.restart();
    document.addEventListener("visibilitychange", seen, { once: true });
  }

  #rested() {
    const greet = this.#waiting;
    this.#waiting = null;
    greet?.();
  }

  openLink() {
    return follow({ open: (...race) => this.#open(...race), running: () => state.running });
  }

  #openFile(name, text, size) {
    if (state.running)
      return this.#showError(`${name} was not opened: a race is running. Open it when that has ended.`);
    try {
      if (!text && size) throw new Error(`It has ${size} bytes, more than this page takes.`);
      const records = readRecording(text);
      records[0].name = name;
      this.#open(records, "file", () => text);
    } catch (error) {
      this.#showError(`${name} cannot be shown. ${error.message}`);
    }
  }

  // `text` gives the lines, should somebody want to keep them.
  #open(records, origin, text) {
    this.replay.hide();
    this.#feed(records.map((record) => (record.event === "begin" ? { ...record, origin } : record)));
    this.share.offer(this.#race, text);
    if (!this.#race.begin.kept) this.#play();
  }

  #feed(records) {
    for (const record of records) {
      // A greeting is shown to those who have seen nothing else.
      if (record.event === "begin") {
        const more = record.origin === "startup" && state.origin === "recording";
        this.#ignored = GREETING.includes(record.origin) && state.origin !== "" && !more;
      }
      if (this.#ignored) continue;
      if (!["begin", "error"].includes(record.event)) this.#next.take(record);
      this.#handlers[record.event]?.(record);
    }
    if (!records.length || this.#ignored || !this.#race) return;
    this.texts.grow();
    this.card.grow();
    this.chart.flush();
    if (this.#race.lane?.open) this.strip.draw();
    this.#progress();
  }

  #handlers = {
    begin: (record) => {
      this.#waiting = null;
      this.#next = new Race(record);
      this.#wait(false);
      this.errorNode.hidden = true;
      state.begun += 1;
    },
    started: () => {
      this.#race = this.#next;
      const { lane } = this.#race;
      if (this.#race.lanes.size === 1) this.#reset();
      this.#show(lane);
      if (lane.name === "speculative") this.card.open(this.#race, lane, 1);
      state.lanesStarted += 1;
    },
    round: () => {
      const { lane } = this.#race;
      if (lane.name === "speculative" && lane.rounds.length === 2) this.card.open(this.#race, lane, 1);
      state.rounds += 1;
    },
    finished: () => (state.lanesFinished += 1),
    lane_end: (record) => {
      this.chart.endLane(record.lane, [record.name, record.duration]);
      this.strip.draw();
      this.texts.say(record.lane, record.duration, true);
      this.measurements.say(record.spoken ?? "");
    },
    verdict: () => this.#showVerdict(),
    error: (record) => {
      if (this.#race === this.#next) this.verdict.progress("The race did not end.");
      else if (this.#edited) this.form.open(true, false); // what was refused stands in it
      this.#setRunning(false);
      this.#showError(record.message);
      state.errors += 1;
    },
  };

  // A new run begins: its lanes have their places and wait.
  #reset() {
    const { lanes, runs } = this.#race.begin;
    this.root.classList.remove("empty", "stale");
    this.#lanes = new Map();
    showRace(null);
    this.replay.hide();
    this.card.hide();
    this.why.hide();
    this.more.hidden = true;
    this.verdict.reset("One lane after the other, on the same prompt and settings.");
    this.texts.place(lanes);
    this.strip.place(lanes);
    this.chart.words = "Tokens written over seconds; the race is running.";
    this.chart.start(this.#race.asked);
    if (state.running && (runs === 1 || this.#race.runs.length === 1)) this.#bringIntoView();
  }

  // Moves the page once, and only where the texts are not in view.
  #bringIntoView() {
    const line = document.querySelector("#sd-line");
    const { top, bottom } = this.texts.node.getBoundingClientRect();
    if (top >= 0 && bottom <= innerHeight) return;
    (line ?? this.root).scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
  }

  // A lane takes its place in every view.
  #show(lane) {
    this.#lanes.set(lane.name, lane);
    this.card.lanesOf(this.#race, this.#lanes);
    this.texts.start(this.#race, lane);
    this.strip.start(lane);
    this.chart.addLane(lane);
  }

  #progress() {
    if (!this.#race?.lane || this.#race !== this.#next || this.#race.verdict || this.#halting || !state.running) return;
    const { runs } = this.#race.begin;
    const run = runs > 1 ? `Run ${this.#race.runs.length} of ${runs} \u00b7 ` : "";
    const { lane } = this.#race;
    this.verdict.progress(`${run}${labelOf(lane.name)}: ${lane.tokens} of ${this.#race.asked}`);
    if (lane.open) this.texts.say(lane.name, `${lane.tokens} of ${this.#race.asked} tokens`);
  }

  #setRunning(running) {
    state.running = running;
    this.#wait(running);
    this.#halting = false;
    if (running) {
      this.#waiting = null;
      this.#edited = this.form.isOpen;
      this.form.open(false);
      if (state.replaying) this.replay.skip();
    }
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
    if (this.#race?.lane && !this.#race.verdict) this.verdict.progress("Stopping \u2026");
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

  #showVerdict() {
    const race = this.#race;
    state.origin = race.begin.origin;
    const { kept } = race.begin; // over a reload
    if (MEASURED.includes(state.origin) && !kept) state.pair = race.begin.pair; // the header may not know yet
    this.#setRunning(false);
    this.#showRun();
    this.#showResult();
    showRace(race);
    state.verdicts = GREETING.includes(state.origin) ? Math.max(1, state.verdicts) : state.verdicts + 1;
    const { figures, stopped } = race.verdict;
    if (state.origin === "run" && figures && !stopped && !kept) this.#play();
  }

  // The run that the verdict names, if it is not the one that was drawn as it came.
  #showRun() {
    for (const key of this.#race.begin.lanes) if (!this.#race.lanes.has(key)) this.texts.didNotRun(key);
    if (this.#race.runs.length < 2) return;
    this.chart.start(this.#race.asked);
    for (const lane of this.#race.lanes.values()) {
      this.#show(lane);
      if (lane.end) this.chart.endLane(lane.name, [lane.end.name, lane.end.duration]);
    }
  }

  // Everything that the verdict says, and all lanes at their ends.
  #showResult() {
    const race = this.#race;
    const record = race.verdict;
    this.verdict.show(race, state.pair);
    this.#labelEnds();
    this.chart.words = told(race, record.chart ?? record.sentence);
    this.measurements.say(told(race, `${record.sentence} ${record.warning ?? ""}`));
    if (record.figures) {
      this.more.hidden = !record.details;
      if (record.details) this.moreBody.replaceChildren(laneTable(record.lanes), factList(record.details));
      this.strip.words.textContent = record.time ?? "";
      this.why.open(record.why && { ...record.why, text: told(race, record.why.text) });
    }
    const ours = this.#lanes.get("speculative");
    if (record.figures && ours?.rounds.length) this.card.open(race, ours, telling(ours));
    this.replay.load(Math.max(0, ...[...race.lanes.values()].map((lane) => lane.duration)));
  }

  #labelEnds() {
    const record = this.#race.verdict;
    const end = this.#race.lanes.get("speculative")?.end;
    if (end && record.factor) {
      this.chart.endLane("speculative", [end.name, `${end.duration} \u00b7 ${record.factor}`]);
      if (record.saved) this.chart.bracket(record.saved);
    }
    if (record.figures && record.stopped) this.#showCut();
  }

  // A race cut short compares over the tokens both wrote.
  #showCut() {
    const plain = this.#lanes.get("generate");
    const written = this.#lanes.get("speculative").tokens;
    this.chart.cutAt(written);
    this.chart.endLane("generate", [
      labelOf("generate"),
      secondsOf(plain.seconds[plain.counts.findLastIndex((count) => count <= written)]),
    ]);
  }

  // Another draft length is dragged: what the run on show tells of it.
  #dragged(gamma) {
    const found = whatIfOf(this.#race);
    if (state.running || !this.#race?.verdict?.figures) return;
    const measured = this.#race.lanes.get("speculative")?.started.gamma;
    if (!found) {
      const why = this.#race.verdict.whatif_refused ?? "This recording does not hold what it takes.";
      return this.#say(`\u03b3 ${gamma} is not computed from the run on show. ${why} Run race measures it.`);
    }
    this.statusNode.hidden = true;
    cancelAnimationFrame(this.dragging);
    this.dragging = requestAnimationFrame(() => this.#showLength(gamma, measured));
  }

  #showLength(gamma, measured) {
    const race = this.#race;
    const own = gamma === measured;
    const recorded = race.lanes.get("speculative");
    const lane = own ? recorded : laneAt(race, recorded, gamma);
    if (this.replay.playing) this.replay.skip();
    this.#show(lane);
    this.texts.computed("speculative", !own);
    const row = race.verdict.whatif.lengths[gamma];
    if (own) this.#showResult();
    else {
      this.verdict.computed(race, row, measured);
      this.chart.endLane("speculative", [`${labelOf("speculative")}, \u03b3 ${gamma}`, secondsOf(lane.duration)]);
      this.strip.words.textContent = `Speculative at \u03b3 ${gamma} is computed from this run, not measured.`;
      this.card.open(race, lane, telling(lane));
      this.replay.load(Math.max(...[...this.#lanes.values()].map((one) => one.duration)));
    }
  }

  // Runs what is on show once more, whatever the form says by now.
  #again(repeat) {
    if (state.running) return;
    this.#wanted = { settings: this.#race.begin.settings, repeat };
    this.again();
  }

  #showMoment(seconds) {
    state.replaying = seconds !== null;
    this.texts.showUntil((key) => momentOf(this.#lanes.get(key), seconds));
    this.strip.showUntil(seconds);
    this.chart.showUntil(seconds);
    const times = MAIN.map((key) => this.#lanes.get(key)?.duration ?? Infinity);
    const rates = this.#race?.verdict?.rates ?? {};
    for (const key of MAIN) {
      const lane = this.#lanes.get(key);
      if (!lane) continue;
      const ended = seconds === null || seconds >= lane.duration;
      const count = lane.counts[(seconds === null ? lane.rounds.length : lane.roundsAt(seconds)) - 1] ?? 0;
      const first = lane.duration <= Math.min(...times);
      const rate = lane === this.#race.lanes.get(key) && rates[key] ? ` \u00b7 ${rates[key]}` : "";
      const computed = lane === this.#race.lanes.get(key) ? "" : "computed: ";
      const waits = first ? "\u2713 waits \u00b7 " : "";
      const time = `${computed}${secondsOf(lane.duration)}`;
      const words = seconds === null ? `${time}${rate}` : `${waits}${time}`;
      this.texts.say(key, ended ? words : `${count} of ${this.#race.asked} tokens`, ended, ended && first);
    }
  }

  #build() {
    this.errorNode = el("p", "sd-error");
    this.errorNode.setAttribute("role", "alert");
    this.errorNode.hidden = true;
    this.statusNode = el("p", "sd-status");
    this.statusNode.setAttribute("role", "status");
    this.statusNode.hidden = true;
    this.chart.words = "Tokens written over seconds; no race yet.";
    this.moreBody = el("div", "sd-more");
    this.more = fold("", "Details", [this.moreBody]);
    this.more.hidden = true;
    const result = el("div", "sd-result", "", [
      this.verdict.node,
      this.texts.node,
      this.strip.node,
      this.replay.node,
      this.strip.foot,
      el("div", "sd-columns", "", [this.chart.node, this.card.node]),
      this.why.node,
      this.texts.others,
      this.more,
    ]);
    this.root.classList.add("empty");
    this.root.replaceChildren(this.errorNode, this.statusNode, result);
  }
}

// How far a lane was at a moment of the replay: the rounds that had ended, and the guesses that were there of the next.
function momentOf(lane, seconds) {
  if (!lane) return null;
  if (seconds === null) return { rounds: lane.rounds.length, guesses: null };
  const rounds = lane.roundsAt(seconds);
  const next = lane.rounds[rounds];
  if (!next?.draft?.length) return { rounds, guesses: null };
  const since = seconds - (lane.seconds[rounds - 1] ?? 0);
  const all = next.draft.length;
  const share = next.draft_seconds > 0 ? since / next.draft_seconds : 1;
  return { rounds, guesses: Math.min(all, Math.floor(all * share)) };
}

// The round to begin with: the first that has a miss, as it has most to tell.
function telling(lane) {
  const found = lane.rounds.findIndex((round) => round.draft?.some((token) => token.status === "rejected"));
  return found > 0 ? found : Math.min(1, lane.rounds.length - 1);
}

const secondsOf = (value) => `${value.toFixed(value < 10 ? 2 : 1)}\u00a0s`;
