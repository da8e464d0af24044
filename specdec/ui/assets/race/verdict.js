// The verdict: the speed-up, its sentence, its origin, and up to four figures.
import { besideShares } from "../lib/definitions.js";
import { button, el, fold, together } from "../lib/dom.js";
import { sharesOf, term } from "../lib/figures.js";
import { labelOf, laneOrder } from "../lib/lanes.js";
import { beginningOf, firstSentence, inOneLine } from "../lib/sentences.js";
import { measuredHere, originOf, sourceOf } from "../lib/origins.js";
import { secondsOf } from "./race.js";

const SHOWN = 60; // characters of the prompt in the caption
const LONG_NOTE = 42; // characters; a longer note takes two lines on a phone, and the texts have fewer
// Characters of a sentence. On a phone one of up to so many stays beside the figure, and one of more than the second
// number is set smaller, so that both texts stay in view.
const [BRIEF, LONG] = [108, 150];
const SETTINGS = "Settings of this run"; // opens what is cut, if there is no note
const FIRST = "Texts and times below are those of run 1.";

// What is measured now; `more` says how, or which run is shown.
function measuring({ begin, onServers, runs }, more) {
  // A race of one run repeats itself if it is short, so how many there will be is not known.
  const count = begin.runs > 1 ? `${begin.runs} runs` : `run ${runs.length || 1}`;
  return el("span", "", `Measuring ${count} ${onServers ? "from" : "on"} this machine. ${more}`);
}

export function conclude(headline, sentence) {
  headline.replaceChildren(...together(sentence));
  headline.classList.toggle("brief", sentence.length <= BRIEF);
  headline.classList.toggle("long", sentence.length > LONG);
}

// The first note, in one line; where there is little room, in two.
export const noteLine = (words) =>
  el("span", `sd-verdictNote${words.length > LONG_NOTE ? " long" : ""}`, "", together(words));

// Whether a note says more than the figures beside it: that the texts are identical is one of them.
const addsTo =
  ({ same, figures = [] }) =>
  ({ kind }) =>
    kind !== "texts" || !same || !figures.some(({ name }) => name === "same");

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
    this.caption = el("p", "sd-caption");
    this.changed = el("p", "sd-changed", "", [
      el("span", "", "Settings changed, not yet run. "),
      button("sd-asLink", "Run them", () => document.querySelector("#sd-run").click()),
    ]);
    this.from = el("div", "sd-verdictOrigin");
    this.notes = fold("sd-verdictNotes", "", [el("div", "sd-verdictNoteWords")]);
    this.shares = el("dl", "sd-figures sd-shares");
    this.figures = el("dl", "sd-figures");
    this.lanes = el("dl", "sd-lanesNow"); // in place of the figures, while a race runs
    this.node = el("section", "sd-verdict", "", [
      this.factor,
      el("div", "sd-verdictWords", "", [
        this.headline,
        this.caption,
        this.changed,
        this.warning,
        this.from,
        this.notes,
      ]),
      this.shares,
      this.figures,
      this.lanes,
    ]);
  }

  // Nothing is known yet: the progress of each lane is in the place of the figures.
  reset(race) {
    this.#hold();
    this.factor.hidden = this.warning.hidden = this.caption.hidden = this.changed.hidden = true;
    const turns = race.onServers ? "The servers answer in turns" : "The lanes run one after the other";
    this.from.replaceChildren(measuring(race, `${turns}, with the same prompt and settings.`));
    this.notes.hidden = true;
    const keys = [...race.begin.lanes].sort((one, other) => laneOrder(one) - laneOrder(other));
    this.#lanes = new Map(keys.map((key) => [key, new Progress(labelOf(key))]));
    this.#show([], []);
    this.lanes.replaceChildren(...[...this.#lanes.values()].map(({ node }) => node));
  }

  progress(words, race) {
    if (this.headline.textContent !== words) conclude(this.headline, words);
    for (const [key, progress] of race ? this.#lanes : []) progress.show(race.runs.at(-1)?.get(key), race.asked);
    if (!(race?.runs.length > 1)) return;
    const now = measuring(race, FIRST);
    if (this.from.textContent !== now.textContent) this.from.replaceChildren(now);
  }

  show(race, loaded) {
    const record = race.verdict;
    this.#computed = false;
    this.node.style.minHeight = "";
    this.#say(record, record.figures ?? []);
    this.warning.textContent = record.warning ?? "";
    this.warning.hidden = !record.warning;
    this.caption.textContent = captionOf(race);
    this.caption.hidden = !record.caption;
    this.changed.hidden = true;
    this.origin(race, loaded);
  }

  // Where the figures come from. Further remarks are one line, which can be opened.
  origin(race, loaded) {
    if (this.#computed) return;
    this.from.replaceChildren(...this.#originOf(race, loaded));
    const cut = this.caption.hidden ? [] : [el("p", "sd-captionNote", this.caption.textContent)];
    if (otherThan(race, loaded)) cut.push(el("p", "sd-otherNote", otherThan(race, loaded)));
    this.#remark(race.verdict.notes.filter(addsTo(race.verdict)), cut);
  }

  // `cut`: what a small window leaves out above, caption and pair. There it is the first of the further notes.
  #remark(notes, cut = []) {
    const [note, ...others] = notes.map(({ text }) => text);
    this.notes.hidden = !note && !cut.length;
    this.notes.classList.toggle("onlyCut", !note);
    const [first, rest] = firstSentence(note ?? SETTINGS);
    const more = rest ? [rest, ...others] : others;
    const summary = noteLine(first);
    const count = el("b", "", `${more.length} more ${more.length === 1 ? "note" : "notes"}`);
    this.notes.firstChild.replaceChildren(summary, ...(more.length ? [count] : []));
    this.notes.lastChild.replaceChildren(...cut, ...more.map((note) => el("p", "", "", together(note))));
  }

  // Whether the form has other settings than the shown race.
  change(changed) {
    this.changed.hidden = !changed || this.#computed;
  }

  // Another draft length, computed from the shown run. `found` is its record.
  computed({ verdict: { whatif, about } }, found) {
    if (!this.#computed) this.#hold();
    this.#computed = true;
    this.changed.hidden = this.caption.hidden = true; // the caption names the measured length
    this.#say({ ...found, about }, found.figures); // as uncertain as the run it is computed from
    this.from.replaceChildren(el("strong", "", whatif.origin));
    this.#remark([...whatif.notes, ...found.notes]);
  }

  // The shares of the speed-up stand below it, the other figures at the right. The headline does not repeat the shares.
  #say({ factor, about, faster, sentence }, figures) {
    const shares = sharesOf(figures);
    const others = figures.filter((figure) => !shares.includes(figure));
    this.factor.replaceChildren(...(about && factor ? [el("small", "", "about ")] : []), factor ?? "");
    this.factor.hidden = !factor;
    this.factor.classList.toggle("about", about && !!factor);
    this.factor.classList.toggle("flat", !faster);
    conclude(this.headline, besideShares(sentence, shares));
    this.#show(shares.map(figureOf), others.map(figureOf));
  }

  #show(shares, others) {
    this.lanes.replaceChildren();
    this.node.classList.toggle("split", shares.length > 0);
    this.shares.replaceChildren(...shares);
    this.figures.replaceChildren(...others);
  }

  // Keeps its height, so that what is below stays in its place.
  #hold() {
    this.node.style.minHeight = `${this.node.offsetHeight}px`;
  }

  // The possible action is beside it.
  #originOf(race, loaded) {
    const { begin } = race;
    const { machine, runs, day } = sourceOf(race);
    const here = measuredHere(begin);
    const time = new Date(begin.at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const facts = here ? [runs, begin.origin === "startup" && time] : [machine, runs, `${day}, ${time}`];
    const [words, repeat] = here ? ["Repeat \u00d75", true] : ["Run it here", false];
    const origin = el("strong", "", "", together([originOf(begin), ...facts.filter(Boolean)].join(" \u00b7 ")));
    origin.title = origin.textContent; // a low window may cut its end
    // The loaded pair cannot repeat what servers did; the tab that asks them can.
    if (race.onServers) return [origin];
    const other = otherThan(race, loaded);
    return [
      origin,
      button("sd-action small sd-again", words, () => this.again(repeat)),
      ...(other ? [el("span", "sd-otherPair", other)] : []),
    ];
  }
}

// How far a lane is in the run that is being measured.
class Progress {
  constructor(name) {
    this.bar = el("span", "sd-progressBar");
    this.words = el("span", "", "waiting");
    this.node = el("div", "", "", [
      el("dt", "", name),
      el("dd", "", "", [el("span", "sd-progress", "", [this.bar]), this.words]),
    ]);
  }

  // `lane`: undefined before it begins. The headline counts its tokens.
  show(lane, asked) {
    const share = !lane ? 0 : lane.open ? lane.tokens / asked : 1;
    this.bar.style.width = `${100 * share}%`;
    this.words.textContent = !lane ? "waiting" : lane.open ? "" : `\u2713 ${secondsOf(lane.duration)}`;
  }
}

// The pair of a race and the loaded one, if they differ. The loaded pair cannot repeat what servers did.
const otherThan = ({ begin, onServers }, loaded) =>
  loaded && loaded !== begin.pair && !onServers ? `This result: ${begin.pair}. Loaded now: ${loaded}.` : "";

// The prompt and the settings of a race.
function captionOf({ begin, verdict }) {
  const short = beginningOf(inOneLine(begin.settings.prompt ?? ""), SHOWN);
  return [short && `\u201c${short}\u201d`, verdict.caption].filter(Boolean).join(" \u00b7 ");
}

const figureOf = (figure) =>
  el("div", figure.name === "measured" ? "sd-ofSpeculation" : "", "", [term(figure), el("dd", "", figure.value)]);
