// Be the draft: the player guesses the next tokens of a real round, then sees which of them the target keeps.
import { chip, dress, spaced } from "./explain_steps.js";
import { choicesOf, gameRounds, verdictOf } from "./game_rules.js";
import { button, el } from "../lib/dom.js";
import { TokenText } from "../race/lines.js";
import { counted, endOf, inWords, sentence, shown, sum, writtenBy } from "./explain_data.js";

const KEPT = "specdec-guess"; // in the browser's storage: the result of the last game
const CONTEXT = 220; // characters of the text before a round

export class Game {
  #race = null;
  #lane = null;
  #rounds = [];
  #results = []; // of the rounds that were checked
  #picks = [];
  #rival = "";

  constructor() {
    this.body = el("div", "sd-gameBody");
    this.said = el("p", "sd-gameSaid");
    this.said.setAttribute("aria-live", "polite");
    this.board = el("div", "sd-gameBoard");
    this.node = el("section", "sd-game", "", [
      el("h2", "", "Be the draft"),
      el("div", "sd-gameTable", "", [el("div", "sd-gamePlay", "", [this.body, this.said]), this.board]),
    ]);
    this.next = el("div", "sd-gameNext");
    this.said.after(this.next);
  }

  // A race is shown, and the steps above show its round `story`.
  open(race, { lane, round, model, server }) {
    this.#race = race;
    this.#lane = lane;
    this.#rival = server ? "server's draft" : model ? "draft model" : "draft";
    this.#results = [];
    this.#rounds = gameRounds(race, lane, round);
    this.said.textContent = "";
    const last = remembered();
    if (!this.#rounds.length)
      this.#show(
        [el("p", "", "The race that is shown is too short for this game. Run one with 64 tokens or more.")],
        "",
      );
    else if (last) this.#summary(last, false);
    else this.#start(false);
  }

  #start(focus) {
    this.#results = [];
    this.#ask(focus);
  }

  get #game() {
    return this.#rounds[this.#results.length];
  }

  // A round: its text so far, a place for each guess, and the choices for the first one.
  #ask(focus) {
    const game = this.#game;
    this.#picks = [];
    const text = new TokenText(this.#race.bytes, this.#lane.started.head);
    const before = [...this.#lane.started.prompt_ids, ...writtenBy(this.#lane).slice(0, game.start)];
    const context = endOf(before.map((id) => text.push(id)).join(""), CONTEXT);
    this.pieces = text.peek(game.truth);
    this.text = text;
    this.slots = Array.from({ length: game.length }, () => el("span", "sd-gameSlot"));
    this.row = el("span", "sd-gameSlots", "", this.slots);
    this.line = el("p", "sd-gameText", "", [el("span", "sd-howContext", context), this.row]);
    this.line.dir = "auto";
    this.label = el("p", "sd-gameLabel");
    this.label.id = "sd-game-label";
    this.choices = el("div", "sd-gameChoices");
    this.choices.setAttribute("role", "group");
    this.choices.setAttribute("aria-labelledby", this.label.id);
    this.check = button("sd-howButton strong", "Check my guesses", () => this.#check());
    const sampled = this.#lane.started.params.temperature !== 0;
    const ask =
      `You are the ${this.#rival} now. Guess the next ${counted(game.length, "token")} of this text, one by one. ` +
      `Then the target checks them in one pass.${sampled ? " In this game it keeps only guesses that it wrote itself in the race." : ""}`;
    this.said.textContent = "";
    this.#show(
      [el("p", "sd-gameAsk", ask), this.line, this.label, this.choices],
      [this.check, button("sd-howButton quiet", "Skip", () => this.#skip())],
    );
    this.#offer(focus);
  }

  #offer(focus) {
    const game = this.#game;
    const place = this.#picks.length;
    const full = place === game.length;
    this.slots.forEach((slot, at) => slot.classList.toggle("current", at === place));
    this.check.disabled = place === 0;
    this.label.textContent = full
      ? "All guesses are made."
      : `Round ${this.#results.length + 1} of ${this.#rounds.length}, guess ${place + 1} of ${game.length}: which token comes next?`;
    const ids = full ? [] : choicesOf(this.#race, this.#lane, game, place);
    const names = ids.map((id) => this.text.peek([...game.truth.slice(0, place), id]).at(-1));
    this.choices.replaceChildren(
      ...ids.map((id, at) => {
        // The second click of a double click is meant for the earlier token.
        const choice = button(
          "sd-gameChoice",
          shown(names[at]),
          ({ detail }) => detail < 2 && this.#pick(id, names[at]),
        );
        choice.dataset.token = String(id);
        return choice;
      }),
    );
    if (focus) rest(full ? this.check : this.choices.firstChild);
  }

  #pick(id, piece) {
    const mark = chip(piece, "guessed");
    this.slots[this.#picks.length].remove();
    this.row.before(...spaced(mark));
    this.slots[this.#picks.length] = mark;
    this.#picks.push(id);
    this.#offer(true);
  }

  // The target's verdict, drawn like every round.
  #check() {
    const game = this.#game;
    const verdict = verdictOf(this.#picks, game.truth);
    verdict.kinds.forEach((kind, at) => dress(this.slots[at], kind));
    for (const slot of this.slots.slice(this.#picks.length)) slot.remove();
    const added = chip(this.pieces[verdict.kept], verdict.addedKind);
    this.slots[Math.min(verdict.kept, this.#picks.length - 1)].after(...spaced(added));
    const picked = this.#picks.length;
    this.#results.push({ you: verdict.kept, draft: game.kept, of: game.length });
    this.said.textContent =
      `You: ${verdict.kept} of ${picked} kept. The ${this.#rival}: ${game.kept} of ${game.length}. ` +
      `This round wrote ${counted(verdict.wrote, "token")} with one target pass.`;
    this.label.remove();
    this.choices.remove();
    const over = this.#results.length === this.#rounds.length;
    if (over) remember(this.#end);
    const on = button("sd-howButton strong", over ? "See the result" : "Next round", () =>
      over ? this.#summary(this.#end, true) : this.#ask(true),
    );
    this.next.replaceChildren(on, ...(over ? [] : [button("sd-howButton quiet", "Skip", () => this.#skip())]));
    this.#score();
    rest(on);
  }

  get #end() {
    const total = (name) => sum(this.#results.map((result) => result[name]));
    return { you: total("you"), draft: total("draft"), of: total("of"), rounds: this.#results.length };
  }

  #skip() {
    remember({ skipped: true });
    this.#results = [];
    this.#summary({ skipped: true }, true);
  }

  #summary(end, focus) {
    const again = button("sd-howButton", "Play again", () => this.#start(true));
    this.#show([], [again]);
    this.said.textContent = end.skipped ? "You skipped this game." : endInWords(end, this.#rival);
    if (focus) rest(again);
  }

  #show(children, buttons) {
    this.body.replaceChildren(...children);
    this.next.replaceChildren(...buttons);
    this.#score();
  }

  // A row of squares for each round, blue for kept guesses.
  #score() {
    this.board.hidden = !this.#results.length;
    if (!this.#results.length) return;
    const head = el("tr", "", "", [el("th", "", "Round"), el("th", "", "You"), el("th", "", `The ${this.#rival}`)]);
    for (const cell of head.children) cell.setAttribute("scope", "col");
    const rows = this.#results.map(({ you, draft, of }, at) => {
      const name = el("th", "", String(at + 1));
      name.scope = "row";
      return el("tr", "", "", [name, cellOf(you, of), cellOf(draft, of)]);
    });
    const name = el("th", "", "All");
    name.scope = "row";
    const { you, draft, of } = this.#end;
    const all = el("tr", "total", "", [name, ...[you, draft].map((kept) => el("td", "", `${kept} of ${of} kept`))]);
    this.board.replaceChildren(
      el("table", "", "", [
        el("caption", "", "Guesses kept"),
        el("thead", "", "", [head]),
        el("tbody", "", "", [...rows, all]),
      ]),
    );
  }
}

function cellOf(kept, of) {
  const squares = Array.from({ length: of }, (_, at) => el("span", at < kept ? "kept" : at === kept ? "missed" : ""));
  const picture = el("span", "sd-gameSquares", "", squares);
  picture.setAttribute("aria-hidden", "true");
  return el("td", "", "", [picture, el("span", "", `${kept} of ${of}`)]);
}

export function endInWords({ you, draft, of, rounds }, rival) {
  const passes = rounds === 1 ? "One target pass" : `${sentence(inWords(rounds))} target passes`;
  const compared =
    you > draft
      ? `You beat the ${rival}.`
      : you === draft
        ? `You did as well as the ${rival}.`
        : `The ${rival} did better, and it did not have a list to choose from.`;
  return (
    `You kept ${you} of ${of} guesses, the ${rival} ${draft}. ${passes} wrote ` +
    `${you + rounds} tokens with your guesses and ${draft + rounds} with those of the ${rival}. ${compared}`
  );
}

// Storage may be forbidden. Then the game is new each time.
function remembered() {
  try {
    const end = JSON.parse(localStorage.getItem(KEPT) ?? "null");
    const whole = ["you", "draft", "of", "rounds"].every((name) => Number.isInteger(end?.[name]));
    return end?.skipped || whole ? end : null;
  } catch {
    return null;
  }
}

function remember(end) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(end));
  } catch {
    // not stored
  }
}

// Moves the keyboard's place without scrolling the page.
const rest = (node) => node?.focus({ preventScroll: true });
