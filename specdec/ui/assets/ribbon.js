// A lane's text, token by token, each drawn by what it is; a round is one joined block.
import { el } from "./dom.js";
import { TokenText } from "./lines.js";

export const KINDS = [
  ["accepted", "Accepted", "guess kept"],
  ["correction", "Correction", "the target's replacement"],
  ["bonus", "Bonus", "extra token after a perfect round"],
  ["rejected", "Rejected", "guess not kept"],
  ["discarded", "Discarded", "never checked"],
];
const WORDS = Object.fromEntries(KINDS.map(([kind, name, meaning]) => [kind, `${name}: ${meaning}`]));
WORDS.target = "Written by the target, nothing was guessed here";

export class Ribbon {
  tokens = 0;
  rounds = 0;
  #text;
  #bytes;
  #cursor = null;
  #inWord = false; // whether the text so far ends in a visible character

  constructor(label, bytes, onPoint = () => {}) {
    this.#bytes = bytes;
    this.onPoint = onPoint;
    this.node = el("div", "sd-ribbon");
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", label);
    this.node.addEventListener("pointerover", (event) => this.#point(event.target.closest(".sd-token")));
    this.node.addEventListener("click", (event) => this.#point(event.target.closest(".sd-token")));
    this.node.addEventListener("keydown", (event) => this.#walk(event));
  }

  start(promptIds) {
    this.#text = new TokenText(this.#bytes);
    this.tokens = this.rounds = 0;
    this.#cursor = null;
    const prompt = el("span", "sd-promptText", promptIds.map((id) => this.#text.push(id)).join(""));
    this.node.replaceChildren(prompt);
    this.node.tabIndex = 0;
  }

  // Shown until the lane begins.
  waiting(words) {
    this.node.replaceChildren(el("span", "sd-waiting", words));
    this.node.tabIndex = -1;
  }

  add(round) {
    const drafts = round.draft ?? [];
    const block = el("span", drafts.length ? "sd-round" : "sd-round alone");
    const kept = drafts.filter((token) => token.status === "accepted");
    round.committed_ids.forEach((id, place) => {
      const added = place === round.committed_ids.length - 1 && round.token_id !== null;
      // What follows the first miss was guessed here, at the place that the correction took.
      if (added) block.append(...this.#missed(drafts, round));
      const kind = added ? round.token_kind : place < kept.length ? "accepted" : "target";
      const piece = this.#text.push(id);
      const mark = this.#token(piece, kind, round, added ? null : kept[place]);
      if (this.#inWord && /^ \S+$/.test(piece)) mark.classList.add("word");
      if (piece) this.#inWord = /\S$/.test(piece);
      block.append(mark);
    });
    this.node.append(block);
    this.tokens += round.committed_ids.length;
    this.rounds += 1;
  }

  #missed(drafts, round) {
    const missed = drafts.filter((token) => token.status !== "accepted");
    const pieces = this.#text.peek(missed.map((token) => token.token_id));
    return missed.map((token, i) => {
      const mark = this.#token(pieces[i], token.status, round, token);
      // No part of the text: a space before it is only a distance, so that the strike begins at the word.
      const trimmed = pieces[i].trimStart();
      if (trimmed && trimmed !== pieces[i]) {
        mark.textContent = trimmed;
        mark.classList.add("spaced");
      }
      return mark;
    });
  }

  #token(piece, kind, round, draft) {
    const mark = el("span", `sd-token ${kind}`, piece);
    if (piece === "") mark.classList.add("partial");
    else if (/^\s*\n\s*$/.test(piece)) mark.classList.add("newline");
    mark.detail = { piece, kind, round: round.index, draft };
    return mark;
  }

  #walk(event) {
    const marks = [...this.node.querySelectorAll(".sd-token")].filter((mark) => mark.offsetParent !== null);
    if (!marks.length) return;
    const at = marks.indexOf(this.#cursor);
    const round = this.#cursor?.detail.round;
    const steps = {
      ArrowRight: () => marks[Math.min(at + 1, marks.length - 1)],
      ArrowLeft: () => marks[Math.max(at - 1, 0)],
      ArrowDown: () => marks.find((mark) => mark.detail.round > (round ?? -1)),
      ArrowUp: () => marks.find((mark) => mark.detail.round === round - 1),
      Home: () => marks[0],
      End: () => marks.at(-1),
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.#point(steps[event.key]());
  }

  #point(mark) {
    if (!mark?.detail) return;
    this.#cursor?.classList.remove("cursor");
    this.#cursor = mark;
    mark.classList.add("cursor");
    this.onPoint(describe(mark.detail));
  }
}

function describe({ piece, kind, round, draft }) {
  const shown = piece === "" ? "part of a character" : `\u201c${piece.replaceAll("\n", "\u21b5")}\u201d`;
  const sure = draft ? ` \u00b7 the draft was ${Math.round(draft.draft_confidence * 100)} % sure` : "";
  return { shown, kind, rest: ` \u00b7 round ${round} \u00b7 ${WORDS[kind]}${sure}` };
}

export function legend() {
  const items = KINDS.map(([kind, name, meaning]) => {
    const item = el("li", `sd-key ${kind}`);
    item.append(el("span", `sd-token ${kind}`, name), el("span", "", meaning));
    return item;
  });
  return el("ul", "sd-legend", "", items);
}
