// One round, step by step: the text before, the guesses, the target's choices, the outcome. The card is beside the
// chart. A round that is chosen elsewhere moves it there.
import { chance, el, narrow, NONE, onWidth, sign } from "../lib/dom.js";
import { decisionOf } from "./decision.js";
import { fromWord, TokenText, UNTOLD_WORDS, visible } from "./lines.js";
import { labelOf } from "../lib/lanes.js";
import { kindsOf } from "./race.js";

const CONTEXT = 14; // tokens of the text before
const MARGIN = 8; // pixels between the card and the place that opened it, and to the window's edge
const LEAST = 200; // visible pixels of the card
// Name, meaning and, if it differs, the name in sampling, where the target may draw a token that is not its most
// likely one.
const COLUMNS = [
  ["#", "place in the draft"],
  ["Guess", "what the draft proposed"],
  ["Target's choice", "the target's own most likely token there", "Target's top"],
  ["q", "the draft's probability of its guess"],
  ["p", "the target's probability of the guess"],
  ["min(1, p/q)", "the probability to keep it"],
  ["Draw", "kept if below min(1, p/q)"],
  ["Result", ""],
];
// With block verification the last passed test decides, so a guess may be kept although its own test failed.
const BLOCK = new Map([
  ["min(1, p/q)", ["Block test", "the probability that the test of the draft up to here passes"]],
  ["Draw", ["Draw", "guesses are kept up to the last draw below its block test"]],
]);
const GUESS = 1;
const SAMPLED = 3; // the first of the columns that only sampling needs
const RESULTS = { accepted: "kept", rejected: "not kept", discarded: "discarded" };
// The ways of a combination in a sentence; another way has the name of its kind.
const WAYS = new Map([
  ["prompt-lookup", "prompt lookup"],
  ["suffix", "suffix decoding"],
  ["model", "the draft model"],
  ["early-exit", "the target's first layers"],
  ["eagle3", "the EAGLE-3 head"],
  ["mtp", "the MTP layers"],
  ["recycling", "token recycling"],
  ["dflash", "the DFlash drafter"],
  ["dspark", "the DSpark drafter"],
  ["gemma4-assistant", "the Gemma 4 assistant"],
]);

export class RoundCard {
  #race = null;
  #lane = null;
  #index = 0;

  /** @param {import("./focus.js").Focus} focus */
  constructor(focus) {
    this.focus = focus;
    focus.add(this);
    this.title = el("h2", "");
    this.slider = el("input", "sd-scrub");
    Object.assign(this.slider, { type: "range", min: 0, step: 1 });
    this.slider.setAttribute("aria-label", "Round");
    this.slider.addEventListener("input", () => this.#go(Number(this.slider.value)));
    this.back = sign("back", "Previous round", () => this.#go(this.#index - 1));
    this.on = sign("on", "Next round", () => this.#go(this.#index + 1));
    this.close = sign("close", "Close the round", () => this.dock());
    this.body = el("div", "sd-steps");
    this.card = el("section", "sd-card", "", [
      el("div", "sd-cardHead", "", [this.title, this.back, this.slider, this.on, this.close]),
      this.body,
    ]);
    this.card.setAttribute("aria-label", "Round by round");
    this.node = el("div", "sd-dock", "", [this.card]);
    this.card.addEventListener("pointerleave", () => focus.point(null));
    // The keyboard may still be in the text that opened the card.
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#away) this.dock();
    });
    document.addEventListener("pointerdown", (event) => {
      if (
        this.#floats &&
        !this.card.contains(event.target) &&
        !event.target.closest?.(".sd-ribbon, .sd-track-of, .sd-plot")
      )
        this.dock();
    });
    // In a window of another width, such as a turned phone, the place that opened it has moved.
    onWidth(this.node, () => this.dock());
    this.dock();
    this.hide();
  }

  hide() {
    this.dock();
    this.card.hidden = true;
    this.#lane = null;
  }

  // A lane, which may still be running.
  open(race, lane, index) {
    this.#race = race;
    this.#lane = lane;
    this.card.hidden = !lane.rounds.length;
    if (lane.rounds.length) this.show(index);
  }

  // The lanes that can be pointed at from now on.
  lanesOf(race, lanes) {
    this.#race = race;
    this.lanes = lanes;
  }

  // Rounds were added.
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
  }

  // The round that another view points at, unless another one was chosen. Its row is lit.
  light(at) {
    const lane = at && this.lanes?.get(at.lane);
    if (lane && !this.#away && !this.card.hidden && at.lane === "speculative" && at.round < lane.rounds.length) {
      if (lane !== this.#lane || at.round !== this.#index) {
        this.#lane = lane;
        this.show(at.round);
      }
    }
    const here = at && this.#lane?.key === at.lane && this.#index === at.round;
    for (const row of this.body.querySelectorAll("tbody tr")) {
      row.classList.toggle("lit", Boolean(here) && Number(row.dataset.row) === at.row);
    }
    for (const chip of this.body.querySelectorAll(".sd-outcome .sd-token"))
      chip.classList.toggle("lit", Boolean(here) && at.place !== null && Number(chip.dataset.place) === at.place);
  }

  // The round that a replay has reached, unless another one was chosen elsewhere.
  follow(lane, index) {
    if (this.#away || this.card.hidden || !lane.rounds.length) return;
    if (lane === this.#lane && index === this.#index) return;
    this.#lane = lane;
    this.show(index);
  }

  choose(at, anchor) {
    const lane = this.lanes?.get(at.lane);
    if (!lane?.rounds.length) return;
    this.#lane = lane;
    this.card.hidden = false;
    this.show(at.round);
    if (anchor) this.#place(anchor);
  }

  // Moves the card back to its own place.
  dock() {
    const held = this.card.contains(document.activeElement) && this.#away;
    this.card.classList.remove("floating", "inflow");
    this.card.removeAttribute("style");
    if (this.card.parentNode !== this.node) this.node.append(this.card);
    this.close.hidden = true;
    if (held) this.slider.focus({ preventScroll: true });
  }

  get #floats() {
    return this.card.classList.contains("floating");
  }

  // Whether the card is beside the chosen place.
  get #away() {
    return this.#floats || this.card.classList.contains("inflow");
  }

  // Moves the card beside the chosen place. It covers neither the tokens of the round nor those at the same places of
  // the other text, nor the round's block in the strip: it goes below the texts or the strip, in a low window below
  // these tokens. Without room there, on a phone, and for a further lane, it goes into the flow of the page. For a point
  // of the chart it is already beside it.
  #place(anchor) {
    const part = anchor.closest(".sd-box, .sd-strip, .sd-fold");
    this.dock();
    if (!part) return;
    this.close.hidden = false;
    const beside = narrow() ? part : (part.closest(".sd-boxes") ?? part);
    if (!narrow() && !part.matches(".sd-fold") && this.#float(part, beside, anchor)) return;
    this.card.classList.remove("floating");
    this.card.removeAttribute("style");
    beside.after(this.card);
    this.card.classList.add("inflow");
    for (const seen of [this.card, anchor]) seen.scrollIntoView({ block: "nearest" }); // the chosen place stays in view
  }

  // Whether there is room for the card above the page.
  #float(part, beside, anchor) {
    const boxes = [...document.querySelectorAll(".sd-box")];
    this.other = part.matches(".sd-box") ? (boxes.find((box) => box !== part) ?? part) : null;
    this.card.classList.add("floating");
    this.card.style.width = `${boxes[0].getBoundingClientRect().width}px`;
    const home = this.card.offsetParent.getBoundingClientRect();
    const put = (left, top) => {
      if (innerHeight - MARGIN - top < Math.min(this.card.offsetHeight, LEAST)) return false;
      this.card.style.left = `${left - home.left}px`;
      this.#drop(Math.max(MARGIN, top));
      return true;
    };
    const below = beside.getBoundingClientRect().bottom + MARGIN;
    const leftOf = (node) => node.getBoundingClientRect().left;
    if (!this.other) {
      const middle = leftOf(anchor) - this.card.offsetWidth / 2;
      return put(Math.min(Math.max(home.left, middle), home.right - this.card.offsetWidth), below);
    }
    // The round's block in the strip stays visible, the enlarged one if there are two: the card is at the other side. A
    // block that reaches into both sides leaves room for the card in the flow only.
    const row = `.sd-stripRow.${this.#lane.key.replace(":", "-")}`;
    const lit = [...document.querySelectorAll(`${row} .sd-stripLit.current:not([hidden])`)];
    const block = lit.at(-1)?.getBoundingClientRect();
    const free = ({ left, right }) => !block || block.right <= left || right <= block.left;
    const away = [boxes[0], boxes.at(-1)].find((box) => free(box.getBoundingClientRect()));
    if (!away) return false;
    return put(leftOf(away), below) || put(leftOf(this.other), this.#belowTwins());
  }

  // Puts the floating card at a height in the window, and ends it above the window's lower edge.
  #drop(top) {
    this.card.style.top = `${top - this.card.offsetParent.getBoundingClientRect().top}px`;
    this.card.style.maxHeight = `${innerHeight - top - MARGIN}px`;
  }

  // Where the tokens of the round end in the other text.
  #belowTwins() {
    const [from, to] = [this.#lane.counts[this.#index - 1] ?? 0, this.#lane.counts[this.#index]];
    const twins = [...this.other.querySelectorAll(".sd-token")].filter(
      ({ detail }) => detail.place !== null && detail.place >= from && detail.place < to,
    );
    const { bottom } = this.other.querySelector(".sd-boxBody").getBoundingClientRect();
    return Math.min(bottom, Math.max(0, ...twins.map((twin) => twin.getBoundingClientRect().bottom))) + MARGIN;
  }

  #go(index) {
    this.show(index);
    this.focus.choose({ lane: this.#lane.key, round: this.#index }, null);
    if (!this.#floats || !this.other) return;
    const below = Math.min(this.#belowTwins(), innerHeight - MARGIN - LEAST);
    if (below > this.card.getBoundingClientRect().top) this.#drop(below);
  }

  #head() {
    const last = this.#lane.rounds.length - 1;
    const lane = this.#lane.key === "speculative" ? "" : ` \u00b7 ${labelOf(this.#lane.key)}`;
    const first = this.#index || this.#lane.pieces ? "" : " \u00b7 the prompt's own pass";
    this.title.textContent = `${this.#lane.pieces ? "Piece" : "Round"} ${this.#index} of ${last}${lane}${first}`;
    this.slider.setAttribute("aria-valuetext", this.title.textContent);
    // Not disabled, because a disabled button loses the keyboard's place.
    this.back.setAttribute("aria-disabled", String(this.#index === 0));
    this.on.setAttribute("aria-disabled", String(this.#index === last));
  }

  #decision(round) {
    const shown = decisionOf(round, this.text, this.#lane.block);
    return shown ? [step("Decision", shown)] : [];
  }

  get #greedy() {
    return this.#lane.started.params.temperature === 0;
  }

  #steps(round) {
    const earlier = this.#lane.rounds.slice(0, round.index).flatMap((r) => r.committed_ids);
    const before = [...this.#lane.started.prompt_ids, ...earlier];
    this.text = new TokenText(this.#race.bytes, this.#lane.started.head);
    const pieces = before.map((id) => this.text.push(id));
    const end = pieces.slice(-CONTEXT).join("");
    const standing = el("p", "sd-context", "", [
      el("span", "sd-faint", pieces.length > CONTEXT ? "\u2026" : ""),
      el("span", "", pieces.length > CONTEXT ? fromWord(end) : end),
    ]);
    const guesses = this.text.peek((round.draft ?? []).map((token) => token.token_id));
    return [
      step("Context", [standing]),
      ...(round.draft?.length
        ? [
            step("Check", [
              this.#table(round, guesses),
              el("p", "sd-stepWords", `${guessedBy(round)}${took(round)}${toldOf(this.#lane, round)}`),
            ]),
          ]
        : []),
      step("Outcome", [
        el("p", "sd-outcome", "", this.#outcome(round, earlier.length)),
        el("p", "sd-stepWords", this.#outcomeWords(round)),
      ]),
      ...(this.#greedy ? [] : this.#decision(round)),
    ];
  }

  #outcomeWords(round) {
    const kept = (round.draft ?? []).filter((token) => token.status === "accepted").length;
    const all = count(round.committed_ids.length, "token");
    if (this.#lane.pieces) return `${all} in one piece of the answer; this server does not tell its rounds.`;
    if (round.draft === null) return `${all} from one target pass; this lane does not report its guesses.`;
    if (!round.draft.length)
      return round.index
        ? "No guesses: the target wrote one token."
        : "The target reads the prompt and writes its first token.";
    if (round.token_id === null) return `${all}; the text ended within the draft.`;
    const added = round.token_kind === "bonus" ? "the bonus token" : "the correction";
    return `${count(kept, "guess", "guesses")} kept, plus ${added}: ${all} from one target pass.`;
  }

  #outcome(round, before) {
    const kinds = kindsOf(round);
    return this.text.peek(round.committed_ids).map((piece, place) => {
      const node = chip(piece, kinds[place]);
      node.dataset.place = String(before + place);
      this.#lights(node, round, { place: before + place, row: null });
      return node;
    });
  }

  // Pointing at a part of the card lights the same place elsewhere.
  #lights(node, round, about) {
    node.addEventListener("pointerenter", () => {
      this.focus.point({ lane: this.#lane.key, round: round.index, ...about });
    });
  }

  // The name of a column, and its meaning.
  #wordsOf(column) {
    const [name, meaning, sampled] = COLUMNS[column];
    if (this.#lane.block && BLOCK.has(name)) return BLOCK.get(name);
    return [this.#greedy ? name : (sampled ?? name), meaning];
  }

  #resultOf({ status }) {
    return this.#lane.block && status === "discarded" ? RESULTS.rejected : RESULTS[status];
  }

  #table(round, guesses) {
    const before = this.#lane.counts[round.index - 1] ?? 0;
    const kept = round.draft.filter((token) => token.status === "accepted").length;
    const all = round.draft.map((token, place) => {
      const accepted = round.draft.slice(0, place).map((earlier) => earlier.token_id);
      // In greedy decoding, a kept guess was the target's choice; for a rejected one the correction was.
      const shown = place < kept ? token.token_id : place === kept ? round.token_id : null;
      const choice = token.target_token_id ?? (this.#greedy ? shown : null);
      const target = choice === null ? NONE : visible(this.text.peek([...accepted, choice]).at(-1));
      return [
        String(place + 1),
        visible(guesses[place]),
        target,
        chance(token.draft_prob),
        chance(token.target_prob),
        chance(token.accept_prob),
        chance(token.draw),
        this.#resultOf(token),
      ];
    });
    // Greedy decoding draws nothing, and a link has no probabilities: columns without a value are left out.
    const columns = COLUMNS.map((_, column) => column).filter((column) => {
      if (column >= SAMPLED && column < COLUMNS.length - 1 && this.#greedy) return false;
      return all.some((values) => values[column] !== NONE);
    });
    const rows = all.map((values, place) => {
      const { status } = round.draft[place];
      const cells = columns.map((column) => {
        const cell = el("td", column === 1 || column === 2 ? "sd-mono" : "");
        if (values[column] === NONE) cell.classList.add("none");
        [cell.dataset.label] = this.#wordsOf(column);
        const last = column === COLUMNS.length - 1;
        const shown = el("span", last ? `sd-token ${status}` : "", values[column]);
        if (column === GUESS && status === "rejected") shown.classList.add("sd-struck");
        if (column === GUESS && round.draft[place].token_id === null) {
          shown.title = UNTOLD_WORDS;
          shown.classList.add("untold");
        }
        cell.append(shown);
        return cell;
      });
      const row = el("tr", status, "", cells);
      row.dataset.row = String(place);
      const token = status === "accepted" ? before + place : place === kept ? before + kept : null;
      this.#lights(row, round, { place: token, row: place });
      return row;
    });
    const head = columns.map((column) => {
      const [name, meaning] = this.#wordsOf(column);
      const cell = el("th", "", name);
      cell.scope = "col";
      cell.title = meaning;
      return cell;
    });
    return el("table", `sd-table sd-verdicts${this.#greedy ? " greedy" : ""}`, "", [
      el("thead", "", "", [el("tr", "", "", head)]),
      el("tbody", "", "", rows),
    ]);
  }
}

function step(name, children) {
  return el("div", `sd-step ${name.toLowerCase()}`, "", [el("h3", "", name), el("div", "sd-stepBody", "", children)]);
}

const chip = (piece, kind) => el("span", `sd-token sd-chipToken ${kind}`, visible(piece));
const count = (n, one, more = `${one}s`) => `${n} ${n === 1 ? one : more}`;
const milliseconds = (seconds) => `${(seconds * 1000).toFixed(1)}\u00a0ms`;

// Which way guessed, where a pair drafts in more than one. What a grammar forces is no guess.
const guessedBy = ({ drafted_by: way }) =>
  way === "grammar"
    ? "Forced by the grammar, at no cost: only these tokens are allowed here. "
    : way
      ? `Guessed by ${WAYS.get(way) ?? way}. `
      : "";

// What a server does not tell of a round.
function toldOf({ server }, { draft }) {
  if (!server) return "";
  const untold = draft.some((token) => token.token_id === null);
  return untold
    ? "A server tells how many guesses it did not keep, not which (?), and no probabilities."
    : "A server tells no probabilities.";
}

// The times of a round's passes.
function took(round) {
  const said = [];
  if (round.draft_seconds) said.push(`Drafting took ${milliseconds(round.draft_seconds)}`);
  if (round.verify_seconds) {
    const positions = count(round.draft.length + 1, "position");
    said.push(`one target pass over ${positions} took ${milliseconds(round.verify_seconds)}`);
  }
  return said.length ? `${said.join("; ")}.` : "";
}
