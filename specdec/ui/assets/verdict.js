// The verdict: the speed-up, its sentence, where it is from, and four figures at most.
import { button, dayOf, el, fold } from "./dom.js";
import { term } from "./figures.js";

export const MEASURED = ["run", "startup"]; // origins of a race that this page's server ran

export class VerdictPanel {
  #computed = false; // whether it tells of another draft length, which is from the race and from no machine

  // `again(repeat)` runs what is on show once more.
  constructor(again) {
    this.again = again;
    this.factor = el("div", "sd-factor");
    this.factor.setAttribute("aria-hidden", "true"); // the sentence says it
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

  // Nothing is known yet; `words` say what goes on.
  reset(words) {
    this.factor.hidden = this.warning.hidden = true;
    this.figures.replaceChildren();
    this.notes.replaceChildren(el("span", "", words));
    this.doubts.hidden = true;
  }

  progress(words) {
    if (this.headline.textContent !== words) this.headline.textContent = words;
  }

  show(race, loaded) {
    const record = race.verdict;
    this.#computed = false;
    // Where there is no clear difference, a large figure would claim one.
    const unclear = record.kind?.startsWith("unclear");
    this.#say(unclear ? null : record.factor, record.faster, told(race, record.sentence));
    this.warning.textContent = record.warning ?? "";
    this.warning.hidden = !record.warning;
    this.figures.replaceChildren(...(record.figures ?? []).map(figureOf));
    this.origin(race, loaded);
  }

  // Where the figures are from. What else there is to know about them is one line, which opens.
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
    this.doubts.firstChild.replaceChildren(summary, ...(more.length ? [el("b", "", `+${more.length}`)] : []));
    this.doubts.lastChild.replaceChildren(...more.map((note) => el("p", "", note)));
  }

  // Another draft length, computed from the run on show: `found` is its row.
  computed(race, found, measured) {
    const { gain } = found;
    this.#computed = true;
    const text = gain >= 10 ? gain.toFixed(0) : gain < 2 ? gain.toFixed(2) : gain.toFixed(1);
    this.#say(`${text}x`, gain > 1, `\u03b3 ${found.gamma} would run at ${text}x the speed of plain generate.`);
    const { assumed, best } = race.verdict.whatif;
    this.notes.replaceChildren(el("strong", "", "Computed from this run. Press Run race to measure it."));
    const exact = found.exact ? [] : ["Some guesses of this length were never made in this run; they are estimated."];
    const fastest = best === null ? [] : [`Fastest by this computation: \u03b3 ${best}.`];
    this.#remark([...fastest, `This run measured \u03b3 ${measured}.`, ...exact, ...(assumed ? [assumed] : [])]);
    const number = (value, digits) => (value === null ? "\u2013" : value.toFixed(digits));
    this.figures.replaceChildren(
      ...[
        { value: `${number(found.share, 2)}x`, label: "speculation" },
        { value: number(found.tokens_per_pass, 2), label: "tokens per target pass" },
        { value: String(Math.round(found.passes)), label: "target passes" },
        { value: number(found.ms_per_token, 1), label: "ms per token" },
      ].map(figureOf),
    );
  }

  #say(factor, faster, sentence) {
    this.factor.textContent = factor ?? "";
    this.factor.hidden = !factor;
    this.factor.classList.toggle("flat", !faster);
    this.headline.textContent = sentence;
  }

  // What can be done about it stands beside it.
  #originOf(race, loaded) {
    const { origin, at, pair, name } = race.begin;
    const record = race.verdict;
    const { cpu, gpu } = race.lane.started.machine;
    const day = dayOf(at);
    const time = new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const runs = record.runs > 1 ? `median of ${record.runs} runs` : "1 run";
    const said = {
      run: `${runs[0].toUpperCase()}${runs.slice(1)} on this machine`,
      startup: `Measured on this machine at start-up, ${time} \u00b7 ${runs}`,
      recording: `A recording made on ${gpu ?? cpu}, ${day}, not measured here \u00b7 ${runs}`,
      link: `From a link, not measured here \u00b7 ${runs}`,
      file: `From the file ${name}, recorded ${day} ${time}, not measured here \u00b7 ${runs}`,
    }[origin];
    const measured = MEASURED.includes(origin);
    const [words, repeat] = measured ? ["Repeat \u00d75", true] : ["Run it here", false];
    const parts = [el("strong", "", said), button("sd-action small sd-again", words, () => this.again(repeat))];
    if (loaded && loaded !== pair) parts.push(el("span", "", `Made with ${pair}. Loaded: ${loaded}.`));
    return parts;
  }
}

const figureOf = (figure) => el("div", "", "", [term(figure), el("dd", "", figure.value)]);

// A sentence about a race; one that was not measured on this machine claims nothing about it.
export function told(race, words) {
  return MEASURED.includes(race.begin.origin) ? words : words.replaceAll(/ (here|on this machine)\b/g, "");
}
