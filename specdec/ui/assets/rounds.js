// One round, step by step: what stood there, what was guessed, what the target said, what came of it.
import { chance, el, NONE, sign } from "./dom.js";
import { TokenText } from "./lines.js";
import { labelOf } from "./lanes.js";
import { kindsOf } from "./race.js";

const CONTEXT = 14; // tokens of what stood before
const COLUMNS = [
  ["#", "place in the draft"],
  ["Guess", "what the draft proposed"],
  ["Target", "the target's own most likely token there"],
  ["Confidence", "the draft's raw probability of its guess, before any sampling setting"],
  ["q", "the draft's probability of its guess"],
  ["p", "the target's probability of the guess"],
  ["min(1, p/q)", "the probability to keep it"],
  ["Draw", "kept if below min(1, p/q)"],
  ["Result", ""],
];
const RESULTS = { accepted: "kept", rejected: "not kept", discarded: "never checked" };

export class RoundCard {
  #race = null;
  #lane = null;
  #index = 0;

  // `onShow` is told which round of which lane is on show.
  constructor(onShow) {
    this.onShow = onShow;
    this.title = el("h2", "");
    this.slider = el("input", "sd-scrub");
    Object.assign(this.slider, { type: "range", min: 0, step: 1 });
    this.slider.setAttribute("aria-label", "Round");
    this.slider.addEventListener("input", () => this.show(Number(this.slider.value)));
    this.back = sign("back", "Previous round", () => this.show(this.#index - 1));
    this.on = sign("on", "Next round", () => this.show(this.#index + 1));
    this.body = el("div", "sd-steps");
    this.node = el("section", "sd-card", "", [
      el("div", "sd-cardHead", "", [this.title, this.back, this.slider, this.on]),
      this.body,
    ]);
    this.node.setAttribute("aria-label", "Round by round");
    this.node.hidden = true;
  }

  hide() {
    this.node.hidden = true;
    this.#lane = null;
  }

  // A lane, perhaps one that still goes on.
  open(race, lane, index) {
    this.#race = race;
    this.#lane = lane;
    this.node.hidden = !lane.rounds.length;
    if (lane.rounds.length) this.show(index);
  }

  // More rounds came.
  grow() {
    if (!this.#lane) return;
    this.slider.max = this.#lane.rounds.length - 1;
    this.#head();
  }

  show(index) {
    this.#index = Math.max(0, Math.min(index, this.#lane.rounds.length - 1));
    this.slider.max = this.#lane.rounds.length - 1;
    this.slider.value = this.#index;
    this.#head();
    this.body.replaceChildren(...this.#steps(this.#lane.rounds[this.#index]));
    this.onShow(this.#lane.name, this.#index);
  }

  #head() {
    const last = this.#lane.rounds.length - 1;
    const lane = this.#lane.name === "speculative" ? "" : ` \u00b7 ${labelOf(this.#lane.name)}`;
    this.title.textContent = `Round ${this.#index} of ${last}${lane}`;
    this.slider.setAttribute("aria-valuetext", this.title.textContent);
    // Not disabled: a button that is would drop the keyboard's place.
    this.back.setAttribute("aria-disabled", String(this.#index === 0));
    this.on.setAttribute("aria-disabled", String(this.#index === last));
  }

  #steps(round) {
    const before = [
      ...this.#lane.started.prompt_ids,
      ...this.#lane.rounds.slice(0, round.index).flatMap((r) => r.committed_ids),
    ];
    this.text = new TokenText(this.#race.bytes);
    const pieces = before.map((id) => this.text.push(id));
    const standing = el("p", "sd-context", "", [
      el("span", "sd-faint", pieces.length > CONTEXT ? "\u2026 " : ""),
      el("span", "", pieces.slice(-CONTEXT).join("")),
    ]);
    const drafts = round.draft ?? [];
    const ids = drafts.map((token) => token.token_id);
    const guesses = this.text.peek(ids);
    return [
      step("Context", "what stood there", [standing]),
      step(
        "Guess",
        this.#guessWords(round),
        drafts.map((token, i) => chip(guesses[i], token.status)),
      ),
      ...(drafts.length ? [step("Check", passWords(round), [this.#table(round, guesses)])] : []),
      step("Outcome", this.#outcomeWords(round), this.#outcome(round)),
      ...this.#decision(round),
    ];
  }

  #guessWords(round) {
    if (round.draft === null) return "this lane does not say what was guessed";
    if (!round.draft.length)
      return round.index ? "nothing was guessed: one plain step" : "nothing yet: the prompt is read";
    return `${count(round.draft.length, "token")} of the draft${took(round.draft_seconds)}`;
  }

  #outcomeWords(round) {
    const kept = (round.draft ?? []).filter((token) => token.status === "accepted").length;
    const all = count(round.committed_ids.length, "token");
    if (round.draft === null) return `${all} from one pass of the target`;
    if (round.token_id === null) return `${all}; the text ended inside the draft`;
    if (round.token_kind === "target") return "one token of the target's";
    const added = round.token_kind === "bonus" ? "the bonus token" : "the correction";
    return `${count(kept, "guess", "guesses")} kept, and ${added}: ${all} from one pass of the target`;
  }

  #outcome(round) {
    const kinds = kindsOf(round);
    return this.text.peek(round.committed_ids).map((piece, place) => chip(piece, kinds[place]));
  }

  #table(round, guesses) {
    const all = round.draft.map((token, place) => {
      const accepted = round.draft.slice(0, place).map((earlier) => earlier.token_id);
      const choice = token.target_token_id ?? null;
      const target = choice === null ? NONE : visible(this.text.peek([...accepted, choice]).at(-1));
      return [
        String(place + 1),
        visible(guesses[place]),
        target,
        chance(token.draft_confidence),
        chance(token.draft_prob),
        chance(token.target_prob),
        chance(token.accept_prob),
        chance(token.draw),
        RESULTS[token.status],
      ];
    });
    // Greedy draws nothing, and a link carries no probabilities: columns without a value are left out.
    const columns = COLUMNS.map((_, column) => column).filter((column) =>
      all.some((values) => values[column] !== NONE),
    );
    const rows = all.map((values, place) => {
      const { status } = round.draft[place];
      const cells = columns.map((column) => {
        const cell = el("td", column === 1 || column === 2 ? "sd-mono" : "");
        cell.dataset.label = COLUMNS[column][0];
        cell.append(
          column === COLUMNS.length - 1
            ? el("span", `sd-token ${status}`, values[column])
            : el("span", "", values[column]),
        );
        return cell;
      });
      return el("tr", status, "", cells);
    });
    const head = columns
      .map((column) => COLUMNS[column])
      .map(([name, meaning]) => {
        const cell = el("th", "", name);
        cell.scope = "col";
        cell.title = meaning;
        return cell;
      });
    return el("table", "sd-table sd-verdicts", "", [
      el("thead", "", "", [el("tr", "", "", head)]),
      el("tbody", "", "", rows),
    ]);
  }

  // The tables at the place where the target added its token: p, q and, after a rejection, the residual.
  #decision(round) {
    const { p, q, residual } = round.decision ?? {};
    if (!p) return [];
    const kinds = [
      ["p", p, "target"],
      ["q", q, "draft"],
      ["residual", residual, "norm(max(0, p \u2212 q))"],
    ].filter(([, rows]) => rows);
    const tables = kinds.map(([name, rows]) => [name, new Map(rows)]);
    const largest = (id) => Math.max(...tables.map(([, rows]) => rows.get(id) ?? 0));
    const ids = [...new Set(kinds.flatMap(([, rows]) => rows.map(([id]) => id)))];
    ids.sort((one, other) => largest(other) - largest(one));
    const accepted = (round.draft ?? []).filter((token) => token.status === "accepted").map((token) => token.token_id);
    const rows = ids.slice(0, 10).map((id) => {
      const chosen = id === round.token_id;
      const name = el("span", "sd-barName sd-mono", visible(this.text.peek([...accepted, id]).at(-1)));
      const bars = tables.map(([kind, values]) => bar(kind, values.get(id)));
      return el("li", chosen ? "chosen" : "", "", [name, el("span", "sd-bars", "", bars)]);
    });
    if (round.token_id !== null && !ids.slice(0, 10).includes(round.token_id)) {
      const name = visible(this.text.peek([...accepted, round.token_id]).at(-1));
      rows.push(
        el("li", "chosen", "", [el("span", "sd-barName sd-mono", name), el("span", "", "not among the most likely")]),
      );
    }
    const greedy = this.#lane.started.params.temperature === 0;
    const margin = round.target_margin === null ? "" : ` Logit margin ${round.target_margin.toPrecision(3)}.`;
    const words = greedy
      ? `raw probabilities, which greedy turns into 1 for the largest and 0 for the rest.${margin}`
      : residual
        ? `the correction was drawn from the residual.${margin}`
        : `the token was drawn from p.${margin}`;
    const key = kinds.map(([name, , of]) => el("span", `sd-barKey ${name}`, `${name}: ${of}`));
    return [step("Decision", words, [el("p", "sd-barKeys", "", key), el("ul", "sd-decision", "", rows)])];
  }
}

function step(name, words, children) {
  return el("div", "sd-step", "", [
    el("h3", "", "", [el("strong", "", name), el("span", "", ` ${words}`)]),
    el("div", "sd-stepBody", "", children),
  ]);
}

function bar(kind, value) {
  const fill = el("span", "sd-fill");
  fill.style.width = `${Math.max(0, Math.min(1, value ?? 0)) * 100}%`;
  const share = value === undefined ? "\u2013" : `${(value * 100).toFixed(1)}\u00a0%`;
  return el("span", `sd-bar ${kind}`, "", [el("span", "sd-track", "", [fill]), el("span", "sd-share-of", share)]);
}

const chip = (piece, kind) => el("span", `sd-token sd-chipToken ${kind}`, visible(piece));
const count = (n, one, more = `${one}s`) => `${n} ${n === 1 ? one : more}`;
const took = (seconds) => (seconds === null || seconds === undefined ? "" : `, ${(seconds * 1000).toFixed(1)} ms`);
const passWords = (round) =>
  `one pass of the target reads ${count(round.draft.length, "guess", "guesses")}${took(round.verify_seconds)}`;

// A token on its own: the space it begins with and line ends are drawn, half a character is named.
function visible(piece) {
  if (piece === "") return "(part of a character)";
  return piece.replaceAll("\n", "\u21b5").replace(/^ /, "\u2423").replace(/ $/, "\u2423").replaceAll("\t", "\u21e5");
}
