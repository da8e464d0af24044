// Everything that shows a race: verdict, texts, strip, chart, round card and folds, on one clock.
import { Chart } from "./chart.js";
import { el, fold, nextFrame, reducedMotion } from "../lib/dom.js";
import { factList, factorOf, laneTable } from "../lib/figures.js";
import { Focus } from "./focus.js";
import { Guide } from "./guide.js";
import { laneAt, whatIfOf } from "./gamma.js";
import { labelOf } from "../lib/lanes.js";
import { secondsOf } from "./race.js";
import { Replay } from "./replay.js";
import { RoundCard } from "./rounds.js";
import { state } from "../lib/state.js";
import { Strip } from "./strip.js";
import { Texts } from "./texts.js";
import { VerdictPanel } from "./verdict.js";
import { waysOn } from "./ways_on.js";
import { Why } from "./why.js";

const MAIN = ["generate", "speculative"];

export class Stage {
  race = null; // the shown race
  #lanes = new Map(); // the shown lanes: those of the race, the speculative one perhaps computed for another draft length
  #longest = 1; // seconds of the slowest lane
  #dragging = null; // calls off the drawing of a dragged length

  // `again(repeat)` runs the shown race again. `onRest` is called when a replay has stopped. `speak` lets words be
  // read out.
  constructor({ again, onRest, speak }) {
    this.speak = speak;
    this.focus = new Focus();
    this.verdict = new VerdictPanel(again);
    this.texts = new Texts(this.focus);
    this.strip = new Strip(this.focus);
    this.chart = new Chart(this.focus);
    this.card = new RoundCard(this.focus);
    this.why = new Why(factList);
    this.replay = new Replay((seconds) => this.#showMoment(seconds), onRest);
    this.chart.words = "Tokens written over seconds; no race yet.";
    this.moreBody = el("div", "sd-more");
    this.more = fold("", "Details", [this.moreBody]);
    this.more.hidden = true;
    this.node = el("div", "sd-result", "", [
      this.verdict.node,
      this.texts.node,
      this.strip.node,
      this.replay.node,
      this.strip.foot,
      el("div", "sd-columns", "", [this.chart.node, el("div", "", "", [this.card.node, waysOn()]), this.why.node]),
      this.texts.others,
      this.more,
    ]);
    this.guide = new Guide(this.texts.explained);
  }

  // A new run begins: its lanes have places and wait.
  begin(race) {
    const strip = this.strip.node;
    strip.style.minHeight = `${strip.offsetHeight}px`; // what is below stays in its place until the end
    this.replay.hide();
    this.race = race;
    const { lanes } = race.begin;
    this.#lanes = new Map();
    this.card.hide();
    this.why.hide();
    this.more.hidden = true;
    this.verdict.reset(race);
    this.texts.place(lanes, race.asked, race.onServers);
    this.strip.place(lanes, race.asked, race.onServers);
    this.chart.words = "Tokens written over seconds; the race is running.";
    this.chart.start(race.asked);
  }

  // Moves the page once, and only if the texts are not in view.
  bringIntoView() {
    const { top, bottom } = this.texts.boxes.getBoundingClientRect();
    if (top >= 0 && bottom <= innerHeight) return;
    const line = document.querySelector("#sd-line") ?? this.node;
    line.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
  }

  // A lane gets its place in every view.
  show(lane) {
    this.#lanes.set(lane.key, lane);
    this.card.lanesOf(this.race, this.#lanes);
    this.texts.start(this.race, lane);
    this.strip.start(lane);
    this.chart.addLane(lane);
  }

  // Its first rounds have come.
  openCard(lane) {
    if (lane.key === "speculative") this.card.open(this.race, lane, 1);
  }

  // More rounds have come.
  grow() {
    this.texts.grow();
    this.card.grow();
    this.chart.flush();
    this.strip.grow();
    const { lane } = this.race;
    if (lane?.open && state.running && this.race.runs.length === 1)
      this.texts.say(lane.key, `${lane.tokens} of ${this.race.asked} tokens`);
  }

  endLane(record) {
    this.chart.endLane(record.lane, [record.name, record.duration]);
    this.strip.draw();
    this.texts.say(record.lane, record.duration, true);
    this.speak(record.spoken ?? "");
  }

  // The verdict has come: all lanes are at their ends, and everything is shown.
  finish() {
    this.grow(); // lines that came with the verdict are not drawn yet
    this.#showRun();
    this.#showResult();
    this.strip.node.style.minHeight = "";
  }

  // Plays the shown race, unless reduced motion is asked for; in a hidden tab, when it becomes visible.
  play() {
    if (reducedMotion()) return;
    const { race } = this;
    const seen = () => {
      if (race !== this.race) return;
      if ([...race.lanes.values()].every((lane) => !lane.pieces)) this.guide.begin(race.onServers);
      this.replay.restart();
    };
    if (!document.hidden) return seen();
    document.addEventListener("visibilitychange", seen, { once: true });
  }

  // The run that the verdict names, if it is not the one that was drawn live.
  #showRun() {
    const { race } = this;
    for (const key of race.begin.lanes) if (!race.lanes.has(key)) this.texts.didNotRun(key);
    if (race.runs.length < 2) return;
    this.chart.start(race.asked);
    for (const lane of race.lanes.values()) {
      this.show(lane);
      if (lane.end) this.chart.endLane(lane.key, [lane.end.name, lane.end.duration]);
    }
  }

  #showResult() {
    const { race } = this;
    const record = race.verdict;
    this.verdict.show(race, state.pair);
    this.#labelEnds();
    this.chart.words = record.chart ?? record.sentence;
    this.speak(`${record.sentence} ${record.warning ?? ""}`);
    if (record.figures) {
      this.more.hidden = !record.details;
      const tables = [record.lanes, record.places, record.passes, record.checks].filter(Boolean);
      if (record.details) this.moreBody.replaceChildren(...tables.map(laneTable), factList(record.details));
      this.strip.words.textContent = record.time ?? "";
      this.why.open(record.why);
    }
    const ours = this.#lanes.get("speculative");
    if (record.figures && ours?.rounds.length) this.card.open(race, ours, telling(ours));
    this.#longest = Math.max(0, ...[...race.lanes.values()].map((lane) => lane.duration));
    this.replay.load(this.#longest);
  }

  #labelEnds() {
    const record = this.race.verdict;
    const end = this.race.lanes.get("speculative")?.end;
    if (end) {
      const time = record.factor ? `${end.duration} \u00b7 ${factorOf(record)}` : end.duration;
      this.chart.endLane("speculative", [end.name, time]);
      if (record.saved) this.chart.bracket(record.saved);
    }
    if (record.figures && record.stopped) this.#showCut();
  }

  // A stopped race is compared over the tokens that both lanes wrote.
  #showCut() {
    const plain = this.#lanes.get("generate");
    const written = this.#lanes.get("speculative").tokens;
    this.chart.cutAt(written);
    this.chart.endLane("generate", [
      labelOf("generate"),
      secondsOf(plain.seconds[plain.counts.findLastIndex((count) => count <= written)] ?? 0),
    ]);
  }

  // Shows the race at another draft length. Returns why that is not possible, or "".
  showLength(gamma) {
    const { race } = this;
    if (!race?.verdict?.figures) return "";
    if (!whatIfOf(race))
      return race.verdict.whatif_refused ?? "This recording does not contain the data for other draft lengths.";
    this.#dragging?.();
    this.#dragging = nextFrame(() => {
      if (race === this.race) this.#showLength(gamma); // another race may have begun meanwhile
    });
    return "";
  }

  #showLength(gamma) {
    const { race } = this;
    const recorded = race.lanes.get("speculative");
    const measured = recorded.started.gamma;
    const own = gamma === measured;
    const lane = own ? recorded : laneAt(race, recorded, gamma);
    if (this.replay.playing) this.replay.skip();
    this.card.dock();
    // A strip of fewer guesses is lower; what is below stays in its place while somebody drags.
    const strip = this.strip.node;
    strip.style.minHeight = own ? "" : strip.style.minHeight || `${strip.offsetHeight}px`;
    this.show(lane);
    this.texts.computed("speculative", !own);
    if (own) return this.#showResult();
    const found = race.verdict.whatif.lengths[gamma];
    this.verdict.computed(race, found);
    const time = `${secondsOf(lane.duration)} \u00b7 ${found.factor}`;
    this.chart.endLane("speculative", [`${labelOf("speculative")}, \u03b3 ${gamma}`, time]);
    const apart = (race.lanes.get("generate")?.duration ?? 0) - lane.duration;
    this.chart.bracket(`${secondsOf(Math.abs(apart))} ${apart >= 0 ? "saved" : "lost"}, computed`);
    const words = `Speculative at \u03b3 ${gamma} is computed from this run, not measured.`;
    this.strip.words.textContent = words;
    this.chart.words = `Tokens written over seconds. ${words}`;
    this.speak(`${this.verdict.headline.textContent} ${this.verdict.from.textContent}`);
    this.why.hide(); // it concerns the measured length
    for (const view of [this.strip, this.chart]) view.choose(null);
    this.card.open(race, lane, telling(lane));
    this.replay.load(Math.max(...[...this.#lanes.values()].map((one) => one.duration)), "measured and computed");
  }

  #showMoment(seconds) {
    state.replaying = seconds !== null;
    this.guide.show(this.replay.playing ? seconds / this.#longest : null);
    this.texts.showUntil(seconds);
    this.strip.showUntil(seconds);
    this.chart.showUntil(seconds);
    const ours = this.#lanes.get("speculative");
    if (ours) this.card.follow(ours, seconds === null ? telling(ours) : Math.max(0, ours.roundsAt(seconds) - 1));
    const fastest = Math.min(...MAIN.map((key) => this.#lanes.get(key)?.duration ?? Infinity));
    for (const key of MAIN) {
      const lane = this.#lanes.get(key);
      if (!lane) continue;
      const ended = seconds === null || seconds >= lane.duration;
      const words = ended ? this.#timeOf(lane, seconds, fastest) : this.#countAt(lane, seconds);
      // In a stopped race the lanes wrote different lengths, so their times cannot be compared.
      this.texts.say(key, words, ended, ended && lane.duration <= fastest && !this.race.verdict?.stopped);
    }
  }

  #countAt(lane, seconds) {
    return `${lane.counts[lane.roundsAt(seconds) - 1] ?? 0} of ${lane.open ? this.race.asked : lane.tokens} tokens`;
  }

  // A lane's time. The faster lane is done while the other still writes.
  #timeOf(lane, seconds, fastest) {
    const measured = lane === this.race.lanes.get(lane.key);
    const time = `${measured ? "" : "computed: "}${secondsOf(lane.duration)}`;
    if (seconds !== null) return `${lane.duration <= fastest ? "\u2713 done \u00b7 " : ""}${time}`;
    if (this.race.verdict?.stopped) return `${lane.tokens} tokens in ${time}`;
    const rate = this.race.verdict?.rates?.[lane.key];
    return measured && rate ? `${time} \u00b7 ${rate}` : time;
  }
}

// The round to begin with: the first with a rejected guess, because it shows most.
function telling(lane) {
  const found = lane.rounds.findIndex((round) => round.draft?.some((token) => token.status === "rejected"));
  return found > 0 ? found : Math.min(1, lane.rounds.length - 1);
}
