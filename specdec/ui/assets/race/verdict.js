// The verdict: the speed-up, its sentence, its origin, and up to four figures.
import { button, dayOf, el, fold } from "../lib/dom.js";
import { term } from "../lib/figures.js";
import { labelOf } from "../lib/lanes.js";

const ABOUT = "about "; // before a factor that other programs or chance have made
export const MEASURED = ["run", "startup"]; // origins of a race that this page's server ran

const LONG = 200; // characters; a longer sentence is set smaller on a phone, so that both texts stay in view

export function conclude(headline, sentence) {
  headline.textContent = sentence;
  headline.classList.toggle("long", sentence.length > LONG);
}

export class VerdictPanel {
  #lanes = new Map(); // lane key -> its progress, while a race runs
  #computed = false; // whether it is about another draft length, which is computed and not measured

  // `again(repeat)` runs the shown race again.
  constructor(again) {
    this.again = again;
    this.factor = el("div", "sd-factor");
    this.factor.setAttribute("aria-hidden", "true"); // the sentence says so
    this.headline = el("p", "sd-headline");
    this.warning = el("p", "sd-warning");
    this.notes = el("div", "sd-notes");
    this.doubts = fold("sd-doubts", "", [el("div", "sd-doubtWords")]);
    this.figures = el("dl", "sd-figures");
    this.node = el("section", "sd-verdict", "", [
      this.factor,
      el("div", "sd-verdictWords", "", [this.headline, this.warning, this.notes, this.doubts]),
      this.figures,
    ]);
  }

  // Nothing is known yet: the progress of each lane is in the place of the figures.
  reset(race) {
    this.factor.hidden = this.warning.hidden = true;
    this.notes.replaceChildren(
      el(
        "span",
        "",
        "Measuring on this machine. The lanes run one after the other, with the same prompt and settings.",
      ),
    );
    this.doubts.hidden = true;
    this.#lanes = new Map(race.begin.lanes.map((key) => [key, el("dd", "", "waiting")]));
    const parts = [...this.#lanes].map(([key, value]) => el("div", "", "", [el("dt", "", labelOf(key)), value]));
    this.figures.replaceChildren(...parts);
  }

  progress(words, race) {
    if (this.headline.textContent !== words) conclude(this.headline, words);
    for (const [key, value] of this.#lanes) {
      const lane = race?.runs.at(-1)?.get(key);
      if (lane) value.textContent = lane.end?.duration ?? `${lane.tokens} of ${race.asked}`;
    }
  }

  show(race, loaded) {
    const record = race.verdict;
    this.#computed = false;
    this.#say(record.factor, record.faster, record.sentence);
    this.warning.textContent = record.warning ?? "";
    this.warning.hidden = !record.warning;
    this.figures.replaceChildren(...(record.figures ?? []).map(figureOf));
    this.origin(race, loaded);
  }

  // Where the figures come from. Further remarks are one line, which can be opened.
  origin(race, loaded) {
    if (this.#computed) return;
    this.notes.replaceChildren(...this.#originOf(race, loaded));
    this.#remark(race.verdict.notes);
  }

  #remark(notes) {
    const [first, ...more] = notes;
    this.doubts.hidden = !first;
    if (!first) return;
    const summary = el("span", "sd-doubt", first);
    const count = el("b", "", `+${more.length}`, [el("span", "", more.length > 1 ? " notes" : " note")]);
    this.doubts.firstChild.replaceChildren(summary, ...(more.length ? [count] : []));
    this.doubts.lastChild.replaceChildren(...more.map((note) => el("p", "", note)));
  }

  // Another draft length, computed from the shown run. `found` is its row.
  computed(race, found, measured) {
    const { gain, share } = found;
    const { whatif, doubts, runs } = race.verdict;
    this.#computed = true;
    this.#say(times(gain), gain > 1, `\u03b3 ${found.gamma} would run at ${times(gain)} the speed of plain generate.`);
    const from = runs > 1 ? `these ${runs} runs` : "this run";
    this.notes.replaceChildren(el("strong", "", `Computed from ${from}, not measured. Press Run race to measure it.`));
    const exact = found.exact ? [] : ["Some guesses of this length were never made in this run; they are estimated."];
    const best = whatif.lengths[whatif.best];
    const fastest = `Fastest by this computation: \u03b3 ${best.gamma}, at ${times(best.gain)}.`;
    const stall = doubts?.includes("stall")
      ? ["A round stalled in this run. The stall counts in what was measured, and not in what is computed."]
      : [];
    const assumed = whatif.assumed ? [whatif.assumed] : [];
    this.#remark([fastest, ...stall, `This run measured \u03b3 ${measured}.`, ...exact, ...assumed]);
    const number = (value, digits) => (value === null ? "\u2013" : value.toFixed(digits));
    this.figures.replaceChildren(
      ...[
        { value: `${number(gain / share, 2)}x`, label: "from our loop" },
        { value: `${number(share, 2)}x`, label: "from speculation" },
        { value: number(found.tokens_per_pass, 2), label: "tokens per target pass" },
        { value: number(found.ms_per_token, 1), label: "ms per token" },
      ].map(figureOf),
    );
  }

  #say(factor, faster, sentence) {
    const about = factor?.startsWith(ABOUT) ?? false;
    this.factor.replaceChildren(
      ...(about ? [el("small", "", ABOUT)] : []),
      about ? factor.slice(ABOUT.length) : (factor ?? ""),
    );
    this.factor.hidden = !factor;
    this.factor.classList.toggle("about", about);
    this.factor.classList.toggle("flat", !faster);
    conclude(this.headline, sentence);
  }

  // The possible action is beside it.
  #originOf(race, loaded) {
    const { origin, at, pair, name } = race.begin;
    const record = race.verdict;
    const { cpu, gpu } = race.lane.started.machine;
    const day = dayOf(at);
    const time = new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const runs = record.runs > 1 ? `median of ${record.runs} runs` : "1 run";
    const said = {
      run: `${runs[0].toUpperCase()}${runs.slice(1)} on this machine`,
      startup: `Measured on this machine at start-up, ${time}`,
      recording: `A recording made on ${gpu ?? cpu}, ${day}, not measured here`,
      link: "From a link, not measured here",
      file: `From the file ${name}, recorded ${day} ${time}, not measured here`,
    }[origin];
    const measured = MEASURED.includes(origin);
    const [words, repeat] = measured ? ["Repeat \u00d75", true] : ["Run it here", false];
    const parts = [el("strong", "", said), button("sd-action small sd-again", words, () => this.again(repeat))];
    if (loaded && loaded !== pair) parts.push(el("span", "", `Made with ${pair}. Loaded: ${loaded}.`));
    return parts;
  }
}

// A factor in the server's format.
const times = (value) => `${value.toFixed(value >= 10 ? 0 : value < 2 ? 2 : 1)}x`;

const figureOf = (figure) => el("div", "", "", [term(figure), el("dd", "", figure.value)]);
