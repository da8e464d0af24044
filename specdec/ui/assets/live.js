// The live view: takes the lines of races from the server, a link or a file, and lets them be shown.
import { defineFigures } from "./lib/definitions.js";
import { nextFrame } from "./lib/dom.js";
import { pairChanged } from "./lib/errors.js";
import { FormLine } from "./race/form.js";
import { LineReader } from "./race/lines.js";
import { defineLanes, labelOf } from "./lib/lanes.js";
import { Measurements, swap } from "./measurements.js";
import { defineOrigins, measuredHere } from "./lib/origins.js";
import { Race, readRecording } from "./race/race.js";
import { askForPair } from "./lib/server.js";
import { answerSaves } from "./lib/save_as.js";
import { Share } from "./share/share.js";
import { showRace } from "./race/current_race.js";
import { Stage } from "./race/stage.js";
import { state } from "./lib/state.js";
import { Status } from "./lib/status.js";
import { onTab, tabShown, walkTabs } from "./lib/tabs.js";
import { explainWords } from "./lib/words.js";
import { follow } from "./address_router.js";
import { listenToPanel } from "./pair_panel.js";

const [LEAST_RUNS, MOST_RUNS] = [3, 5]; // of a short race, as in specdec/report/verdict.py
const GREETING = ["startup", "recording"]; // origins of a race that the page shows by itself; any other race replaces it

const SERVER_TAB = "your-server"; // which has the view while it shows a race of servers
const ASKING = "The servers are asked, one after the other. A text is shown when its answer has ended.";

// Resolves when the view is mounted. A button that is pressed before waits for it.
let mounted = () => {};
export const ready = new Promise((resolve) => {
  mounted = () => resolve(undefined);
});

// `recordings`: name -> address of the recorded races that the server has.
export async function mount(element, props, watch, lanes, definitions, again, recordings = {}) {
  state.recordings = recordings;
  defineLanes(lanes);
  defineFigures(definitions);
  defineOrigins(definitions.origins);
  explainWords();
  const view = new View(element, again);
  mounted(); // the buttons have what they need; an unreadable link must not block them
  const reader = new LineReader();
  await view.openLink();
  const update = () => view.take(reader.read(props.value ?? ""), props.value ?? "");
  watch("value", update);
  update();
  state.mounted = true;
}

class View {
  #race = null; // the shown race
  #started = false; // whether a lane of the race that was asked for has begun
  #next = null; // the race whose lines arrive; until its first lane starts the last race stays, as it may be refused
  #wanted = null; // the run for `again`
  #ignored = false; // a greeting that came when another race was shown
  #waiting = null; // a greeting that is shown when the replay of the recording has ended
  #halting = false;
  #text = () => ""; // the lines of the shown race
  #behind = null; // the race that a recording of the gallery covers: its origin, name and lines
  #edited = false; // whether the form was open when Run was pressed
  #pressed = 0;
  #ended = 0;

  // `again` lets the server run what `window.specdec.shown()` returns.
  constructor(root, again) {
    this.root = root;
    this.again = again;
    this.measurements = new Measurements();
    this.stage = new Stage({
      again: (repeat) => this.#again(repeat),
      onRest: () => this.#rested(),
      speak: (words) => this.measurements.say(words),
    });
    this.status = new Status();
    this.share = new Share((...file) => this.#openFile(...file));
    this.root.classList.add("empty");
    this.root.replaceChildren(this.stage.node);
    this.#settle();
    onTab(() => this.#settle());
    this.form = new FormLine(
      (gamma) => this.#dragged(gamma),
      () => this.stage.verdict.change(this.#isOfForm && this.form.differs(this.#race)),
    );
    document.querySelector("#sd-line .sd-linePlace")?.replaceChildren(this.form.node);
    this.#answer();
    this.#listen();
  }

  // Puts the view into the open tab: that of servers if they ran the shown race, else the tab Race. Messages go along.
  #settle() {
    const open = tabShown() === SERVER_TAB;
    const place = open && document.querySelector("#sd-server-live .sd-livePlace");
    if (open && !place) return void nextFrame(() => this.#settle()); // Gradio is about to draw it
    const home = place && this.#race?.onServers ? place : this.root;
    if (this.stage.node.parentNode !== home) home.append(this.stage.node);
    const said = document.querySelector(`${place ? "#sd-server-said" : "#sd-said"} .sd-saidPlace`);
    if (said && this.status.node.parentNode !== said) said.replaceChildren(this.status.error, this.status.node);
  }

  // Marks the places of the view.
  #mark(name, on) {
    const place = document.querySelector("#sd-server-live .sd-livePlace");
    for (const node of [this.root, place]) node?.classList.toggle(name, on);
  }

  // The functions that the page's listeners call.
  #answer() {
    Object.assign(state, {
      begin: () => {
        this.#behind = null;
        this.#pressed += 1;
        this.#started = false;
        this.#setRunning(true);
      },
      // Called shortly after the verdict, perhaps when the next race has begun. `said` is the server's message about
      // a race that left the queue, `refused` the text to show if Gradio itself ended one.
      end: (said, refused) => {
        this.#ended = Math.min(this.#ended + 1, this.#pressed);
        if (this.#ended < this.#pressed) return;
        this.#setRunning(false);
        if (said) this.status.say(said);
        if (refused) this.status.fail(refused);
      },
      halt: () => {
        this.#halting = true;
        if (this.#started && !this.#race.verdict) this.stage.verdict.progress("Stopping \u2026");
        else this.status.stopping();
      },
      loaded: (pair) => {
        state.pair = pair;
        if (this.#race?.verdict) this.stage.verdict.origin(this.#race, pair);
      },
      shown: () => this.#wanted,
      open: (text, origin) => {
        if (state.running) return this.status.fail("The recording was not opened: a race is running.", true);
        try {
          this.#open(readRecording(text), origin, () => text);
        } catch (error) {
          this.status.fail(`The recording cannot be shown. ${error.message}`);
        }
      },
      asked: () => this.form.read(),
      go: (name) => this.measurements.go(name),
      rest: (name) => this.measurements.rest(name),
    });
  }

  #listen() {
    const tabs = document.querySelector("#sd-tabs [role=tablist]");
    if (tabs) walkTabs(tabs);
    answerSaves();
    const header = document.querySelector("#sd-header");
    const pairIn = () => header?.querySelector(".sd-pair span")?.textContent ?? "";
    let named = pairIn();
    if (named) state.loaded(named);
    const renamed = () => {
      if (!pairIn() || pairIn() === named) return;
      named = pairIn();
      state.loaded(named);
      pairChanged();
      askForPair(); // switches such as Chat follow it
    };
    if (header) new MutationObserver(renamed).observe(header, { childList: true, subtree: true, characterData: true });
    document.querySelector("#sd-prompt textarea")?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!state.running) document.querySelector("#sd-run").click();
    });
    listenToPanel();
  }

  // New lines of a race that runs here. `text` has all of them when the race has ended.
  take(records, text) {
    const [first] = records;
    // The start-up race replaces the recording, but not during its replay.
    if (first?.origin === "startup" && state.origin === "recording" && state.replaying) {
      this.#waiting = () => this.#takeNow(records, text);
      return;
    }
    this.#takeNow(records, text);
  }

  #takeNow(records, text) {
    const greeted = state.origin !== "";
    this.#feed(records);
    if (!this.#race?.verdict || this.#race !== this.#next || !records.length || this.#ignored) return;
    this.#offer(() => text);
    if (!greeted && GREETING.includes(state.origin)) this.stage.play();
  }

  #rested() {
    const greet = this.#waiting;
    this.#waiting = null;
    greet?.();
  }

  openLink() {
    return follow({
      open: (...race) => this.#open(...race),
      running: () => state.running,
      cover: () => (this.#behind ??= this.#race?.verdict && [this.#race.begin, this.#text]),
      uncover: () => this.#uncover(),
    });
  }

  // What the opened recording covers is shown again.
  #uncover() {
    if (!this.#behind || state.running || state.origin !== "gallery") return;
    const [{ origin, name }, text] = this.#behind;
    this.#behind = null;
    const records = readRecording(text());
    Object.assign(records[0], { name, kept: true });
    state.origin = ""; // a greeting comes back too
    this.#open(records, origin, text);
    this.form.fill(this.#race); // the recording had set it
  }

  #offer(text) {
    this.#text = text;
    this.share.offer(this.#race, text);
  }

  #openFile(name, text, size) {
    if (state.running)
      return this.status.fail(`${name} was not opened: a race is running. Open it after the race has ended.`, true);
    try {
      if (!text && size) throw new Error(`It has ${size} bytes, more than this page takes.`);
      const records = readRecording(text);
      records[0].name = name;
      this.#open(records, "file", () => text);
    } catch (error) {
      this.status.fail(`${name} cannot be shown. ${error.message}`);
    }
  }

  // `text` gives the lines, in case somebody saves them.
  #open(records, origin, text) {
    this.stage.replay.hide();
    this.#feed(records.map((record) => (record.event === "begin" ? { ...record, origin } : record)));
    this.#offer(text);
    if (!this.#race.begin.kept) this.stage.play();
  }

  #feed(records) {
    for (const record of records) {
      // A greeting is shown only to visitors who have seen nothing else.
      if (record.event === "begin") {
        const more = record.origin === "startup" && state.origin === "recording";
        this.#ignored = GREETING.includes(record.origin) && state.origin !== "" && !more;
      }
      if (this.#ignored) continue;
      if (!["begin", "error"].includes(record.event)) this.#next.take(record);
      this.#handlers[record.event]?.(record);
    }
    if (!records.length || this.#ignored || !this.#race) return;
    this.stage.grow();
    this.#progress();
  }

  #handlers = {
    begin: (record) => {
      this.#waiting = null;
      this.#next = new Race(record);
      this.status.wait(false);
      this.status.clear();
      if (record.origin === "servers" && state.running) this.status.say(ASKING);
      state.begun += 1;
    },
    started: () => {
      this.#race = this.#next;
      if (!this.#started) this.status.wait(false);
      this.#started = true;
      this.#settle();
      state.lanesStarted += 1;
      const { lane, lanes } = this.#race;
      if (this.#isFurther) return; // the texts of the first run stay
      if (lanes.size === 1) this.#reset();
      this.stage.show(lane);
      this.stage.openCard(lane);
    },
    round: () => {
      const { lane } = this.#race;
      if (lane.rounds.length === 2 && !this.#isFurther) this.stage.openCard(lane);
      state.rounds += 1;
    },
    finished: () => (state.lanesFinished += 1),
    lane_end: (record) => this.#isFurther || this.stage.endLane(record),
    verdict: () => this.#showVerdict(),
    error: (record) => {
      if (this.#race === this.#next) this.stage.verdict.progress("The race did not end.");
      else if (this.#edited) this.form.open(true, false); // the refusal is shown in it
      this.#setRunning(false);
      this.status.fail(record.message);
      state.errors += 1;
    },
  };

  // Whether a further run of the same race is being measured.
  get #isFurther() {
    return this.#race.runs.length > 1;
  }

  #reset() {
    this.#mark("empty", false);
    this.#mark("stale", false);
    showRace(null);
    this.stage.begin(this.#race);
    if (state.running) this.stage.bringIntoView();
  }

  #progress() {
    if (!this.#race?.lane || this.#race !== this.#next || this.#race.verdict || this.#halting || !state.running) return;
    const { runs } = this.#race.begin;
    const made = this.#race.runs.length;
    let run = runs > 1 ? `Run ${made} of ${runs} \u00b7 ` : "";
    // More than planned: a short race repeats itself, and more often if something is doubtful about it.
    if (made > runs)
      run =
        made <= LEAST_RUNS
          ? `Measuring again, run ${made} \u00b7 `
          : `The runs were disturbed or differ; measuring again, run ${made} of up to ${MOST_RUNS} \u00b7 `;
    const { lane } = this.#race;
    const asked = lane.open ? ` of ${this.#race.asked}` : ""; // a lane that has ended may have written fewer tokens
    this.stage.verdict.progress(`${run}${labelOf(lane.key)}: ${lane.tokens}${asked} tokens`, this.#race);
  }

  #setRunning(running) {
    state.running = running;
    this.status.wait(running);
    this.#halting = false;
    this.form.hold(running);
    if (running) {
      this.#waiting = null;
      this.#edited = this.form.isOpen;
      this.form.open(false);
      if (state.replaying) this.stage.replay.skip();
    }
    swap("sd-running", running, "#sd-run, .sd-again, #sd-server-start", "#sd-stop, #sd-server-stop");
    // The old result is dimmed until the first lane of the new race, and comes back after an error.
    this.#mark("stale", running);
  }

  #showVerdict() {
    const race = this.#race;
    state.origin = race.begin.origin;
    const { kept } = race.begin; // over a reload
    if (measuredHere(race.begin) && !kept && !race.onServers) state.pair = race.begin.pair; // Gradio may not have drawn the header
    this.#setRunning(false);
    this.stage.finish();
    this.form.about(race);
    showRace(race);
    state.verdicts = GREETING.includes(state.origin) ? Math.max(1, state.verdicts) : state.verdicts + 1;
    if (["gallery", "file"].includes(state.origin) && !kept) this.form.fill(race); // Run race begins with what is shown
    const { figures, stopped } = race.verdict;
    if (["run", "servers"].includes(state.origin) && figures && !stopped && !kept) this.stage.play();
  }

  // Another draft length was dragged.
  #dragged(gamma) {
    if (state.running) return;
    this.status.wait(false);
    const why = this.stage.showLength(gamma);
    if (!why) return;
    const measure = this.#race.onServers ? "" : " Press Run race to measure it.";
    this.status.say(`\u03b3 ${gamma} is not computed from the shown run. ${why}${measure}`);
  }

  // Whether the shown race is one that the form could run.
  get #isOfForm() {
    return Boolean(this.#race?.verdict?.caption) && !this.#race.onServers;
  }

  // Runs the shown race again, whatever the form contains now.
  #again(repeat) {
    if (state.running) return;
    this.#wanted = { settings: this.#race.begin.settings, repeat };
    this.again();
  }
}
