// A lane's text, token by token, each drawn by its kind. A round is one joined block.
import { chance, el } from "../lib/dom.js";
import { word } from "../lib/words.js";
import { TokenText, UNTOLD_WORDS } from "./lines.js";
import { kindsOf, momentOf } from "./race.js";

// The words in brackets are left out where there is no room.
export const KINDS = [
  ["accepted", "Accepted", "guess kept"],
  ["correction", "Correction", "[the target's ]replacement"],
  ["bonus", "Bonus", "extra token[ after a perfect round]"],
  ["rejected", "Rejected", "not kept"],
  ["discarded", "Discarded", "not used"],
];
const WORDS = Object.fromEntries(KINDS.map(([kind, name, means]) => [kind, `${name}: ${means.replace(/[[\]]/g, "")}`]));
WORDS.target = "Written by the target; there was no guess here";
WORDS.unknown = "Written here; this lane does not report its guesses";

const PROMPT_END = 12; // characters of a prompt that stay where there is little room
const LONG = 16; // characters; a longer token may be wider than its box

export class Ribbon {
  #text;
  #race = null;
  #lane = null;
  #blocks = [];
  #marks = []; // of the committed tokens, by their place in the text
  #moment = null; // of a replay, in seconds; null: everything is visible
  #visible = 0; // blocks; the later ones have the class "later"
  #guessing = null; // the block of the round that a replay shows in part
  #fresh = null; // the latest finished block, whose rejected guess is still visible
  #cursor = null;
  #lit = null;
  #inWord = false; // whether the text ends in a visible character

  /**
   * @param {string} label
   * @param {import("./focus.js").Focus} focus
   */
  constructor(label, focus) {
    this.focus = focus;
    this.node = el("div", "sd-ribbon");
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", label);
    this.node.addEventListener("pointerover", (event) => this.#point(event.target.closest(".sd-token")));
    this.node.addEventListener("pointerleave", () => focus.point(null));
    this.node.addEventListener("click", (event) => {
      this.#point(event.target.closest(".sd-token"));
      this.#choose(event.target.closest(".sd-token"));
    });
    this.node.addEventListener("keydown", (event) => this.#walk(event));
  }

  // Shown until the lane begins.
  waiting(words) {
    this.#lane = null;
    this.node.replaceChildren(el("span", "sd-waiting", words));
    this.node.tabIndex = -1;
  }

  // The lane's text so far. `grow` adds later tokens.
  start(race, lane) {
    this.#race = race;
    this.#lane = lane;
    this.#text = new TokenText(race.bytes, lane.started.head);
    this.#blocks = [];
    this.#marks = [];
    this.#visible = 0;
    this.#cursor = this.#lit = this.#guessing = this.#fresh = null;
    const prompt = promptOf(lane.started.prompt_ids.map((id) => this.#text.push(id)).join(""));
    this.#inWord = /\S$/.test(prompt.textContent);
    this.node.replaceChildren(prompt);
    this.node.tabIndex = 0;
    this.grow();
  }

  grow() {
    if (!this.#lane) return;
    const fresh = document.createDocumentFragment();
    while (this.#blocks.length < this.#lane.rounds.length) {
      const block = this.#block(this.#lane.rounds[this.#blocks.length], fresh);
      block.classList.add("later");
      this.#blocks.push(block);
    }
    this.node.append(fresh);
    this.#draw();
  }

  // A moment of a replay, in seconds; null is the end, with everything visible.
  showUntil(seconds) {
    this.#moment = seconds;
    if (this.#lane) this.#draw();
  }

  // Ended rounds are visible, and perhaps some guesses of the next one. The rest keeps its place.
  #draw() {
    const ended = this.#moment === null;
    const { rounds, guesses } = momentOf(this.#lane, this.#moment);
    const end = Math.min(rounds, this.#blocks.length);
    while (this.#visible > end) this.#blocks[--this.#visible].classList.add("later");
    while (this.#visible < end) this.#blocks[this.#visible++].classList.remove("later");
    const next = guesses === null ? null : (this.#blocks[end] ?? null);
    if (this.#guessing && this.#guessing !== next) {
      this.#guessing.classList.remove("guessing");
      for (const mark of marksOf(this.#guessing)) mark.classList.remove("unborn");
    }
    this.#guessing = next;
    if (next) {
      next.classList.add("guessing");
      let born = 0;
      for (const mark of marksOf(next)) {
        if (mark.detail.row !== null && mark.detail.guess) mark.classList.toggle("unborn", born++ >= guesses);
      }
    }
    const writes = ended ? this.#lane.open : end < this.#blocks.length;
    this.#settle(writes ? (this.#blocks[end - 1] ?? null) : null);
  }

  // The block of the first round: what was written begins there.
  get first() {
    return this.#blocks[0] ?? null;
  }

  // The last visible block, to keep it in view.
  get tip() {
    return this.#guessing ?? this.#blocks[this.#visible - 1] ?? null;
  }

  #settle(block) {
    if (this.#fresh === block) return;
    this.#fresh?.classList.remove("fresh");
    this.#fresh = block;
    this.#fresh?.classList.add("fresh");
  }

  // Lights the token at a place, or the round if a view points at no token. The token at the same place of every lane
  // is lit.
  light(at) {
    this.#lit?.classList.remove("lit");
    this.#lit = at && this.#lane ? this.#nodeAt(at) : null;
    this.#lit?.classList.add("lit");
  }

  #nodeAt(at) {
    if (at.lane !== this.#lane.key) return at.place == null ? null : (this.#marks[at.place] ?? null);
    const block = this.#blocks[at.round] ?? null;
    if (at.row != null) return marksOf(block).find((mark) => mark.detail.row === at.row && mark.offsetParent) ?? block;
    return at.place == null ? block : (this.#marks[at.place] ?? block);
  }

  // The round whose card is open.
  choose(at) {
    for (const block of this.node.querySelectorAll(".current")) block.classList.remove("current");
    if (at && this.#lane?.key === at.lane) this.#blocks[at.round]?.classList.add("current");
  }

  // The token at a place of this lane, in words.
  wordsAt(at) {
    if (!this.#lane || at?.lane !== this.#lane.key) return null;
    const node = this.#nodeAt(at);
    const mark = node?.detail ? node : marksOf(node).find((one) => one.detail.place != null);
    return mark?.detail ? describe(mark.detail, this.#race.bytes, this.#lane.block) : null;
  }

  #block(round, parent) {
    const drafts = round.draft ?? [];
    const block = el("span", drafts.length ? "sd-round" : "sd-round alone");
    const kept = drafts.filter((token) => token.status === "accepted");
    const kinds = kindsOf(round);
    const inWord = this.#inWord;
    round.committed_ids.forEach((id, place) => {
      const added = place === round.committed_ids.length - 1 && round.token_id !== null;
      // Guesses after the rejected one were made here, at the place of the correction.
      if (added) block.append(...this.#missed(drafts, round));
      const piece = this.#text.push(id);
      if (!place && inWord && /^\S/.test(piece)) this.#blocks.at(-1)?.classList.add("inWord"); // its gap is no space
      const draft = added ? (drafts.find((token) => token.status === "rejected") ?? null) : (kept[place] ?? null);
      const guess = !added && place < kept.length;
      const row = draft ? drafts.indexOf(draft) : null;
      const mark = this.#token(piece, kinds[place], round, draft, { place: this.#marks.length, row, guess });
      if (this.#inWord && /^ \S+$/.test(piece)) mark.classList.add("word");
      // The line breaks before the token, or before its round, because a break inside would split an outline.
      if (mark.matches(".word")) (place ? block : parent).append(el("wbr"));
      if (piece) this.#inWord = /\S$/.test(piece);
      this.#marks.push(mark);
      block.append(mark);
    });
    // A round that ended inside its draft has no token of the target. The rest of the draft is drawn after it.
    if (round.token_id === null && drafts.length) block.append(...this.#missed(drafts, round));
    parent.append(block);
    return block;
  }

  #missed(drafts, round) {
    const missed = drafts.filter((token) => token.status !== "accepted");
    const pieces = this.#text.peek(missed.map((token) => token.token_id));
    return missed.map((token, i) => {
      const about = { place: null, row: drafts.indexOf(token), guess: true };
      const mark = this.#token(pieces[i], token.status, round, token, about);
      if (token.token_id === null) {
        mark.classList.add("untold");
        mark.title = UNTOLD_WORDS;
      }
      // Not part of the text: a space before it is only a distance, so that the strike begins at the word.
      const trimmed = pieces[i].trimStart();
      if (trimmed && trimmed !== pieces[i]) {
        mark.textContent = trimmed;
        mark.classList.add("spaced");
      }
      return mark;
    });
  }

  #token(piece, kind, round, draft, about) {
    const mark = el("span", `sd-token ${kind}`, piece);
    if (piece === "") mark.classList.add("partial");
    else if (/^\s*\n\s*$/.test(piece)) mark.classList.add("newline");
    if (piece.length > LONG) mark.classList.add("long");
    // Every outline is in one piece: around what stands before the end of the line.
    const end = about.place === null ? -1 : piece.indexOf("\n");
    if (end >= 0) {
      mark.classList.add("ends");
      mark.replaceChildren(el("span", "sd-tokenLine", piece.slice(0, end)), piece.slice(end));
    }
    mark.detail = { piece, kind, round, draft, ...about };
    return mark;
  }

  #walk(event) {
    const marks = [...this.node.querySelectorAll(".sd-token")].filter((mark) => mark.offsetParent !== null);
    if (!marks.length) return;
    const at = marks.indexOf(this.#cursor);
    const round = this.#cursor?.detail.round.index;
    const steps = {
      ArrowRight: () => marks[Math.min(at + 1, marks.length - 1)],
      ArrowLeft: () => marks[Math.max(at - 1, 0)],
      ArrowDown: () => marks.find((mark) => mark.detail.round.index > (round ?? -1)),
      ArrowUp: () => marks.find((mark) => mark.detail.round.index === round - 1),
      Home: () => marks[0],
      End: () => marks.at(-1),
    };
    if (event.key === "Enter") this.#choose(this.#cursor);
    else if (event.key in steps) this.#point(steps[event.key](), true);
    else return;
    event.preventDefault();
  }

  #at(mark) {
    const { round, place, row } = mark.detail;
    return { lane: this.#lane.key, round: round.index, place, row };
  }

  #point(mark, byKey = false) {
    if (!mark?.detail) return;
    this.#cursor?.classList.remove("cursor");
    this.#cursor = mark;
    if (byKey) mark.classList.add("cursor");
    this.focus.point(this.#at(mark), byKey);
  }

  #choose(mark) {
    if (mark?.detail) this.focus.choose(this.#at(mark), mark);
  }
}

const marksOf = (block) => [...(block?.querySelectorAll(".sd-token") ?? [])];

const known = (value) => value !== null && value !== undefined; // a link carries no probabilities
const percent = (share) => `${(share * 100).toFixed(share < 0.0995 && share > 0 ? 1 : 0)}\u00a0%`;

// A token in words: its round, its kind, and the figures of the guess at its place.
function describe({ piece, kind, round, draft }, bytes, block) {
  const parts = [`round ${round.index}`, WORDS[kind]];
  if (draft) {
    const untold = draft.token_id === null;
    if (untold) parts.push(kind === "correction" ? "in place of a guess that the server did not tell" : UNTOLD_WORDS);
    else if (kind === "correction") parts.push(`the guess was ${quoted(textOf(draft.token_id, bytes))}`);
    if (known(draft.draft_confidence)) parts.push(`the draft's confidence was ${percent(draft.draft_confidence)}`);
    if (known(draft.draw)) {
      parts.push(`q ${chance(draft.draft_prob)}`, `p ${chance(draft.target_prob)}`);
      parts.push(`${block ? "block test" : "min(1, p/q)"} ${chance(draft.accept_prob)}`, `draw ${chance(draft.draw)}`);
    }
    if (kind !== "correction" && known(draft.target_token_id) && draft.target_token_id !== draft.token_id) {
      parts.push(`the target's own choice: ${quoted(textOf(draft.target_token_id, bytes))}`);
    }
  }
  const untold = draft?.token_id === null && kind !== "correction";
  const shown = piece === "" ? "part of a character" : untold ? piece : quoted(piece);
  return { shown, kind, rest: ` \u00b7 ${parts.join(" \u00b7 ")}` };
}

const textOf = (id, bytes) => new TextDecoder().decode(Uint8Array.from(bytes.get(id) ?? []));
const quoted = (text) => `\u201c${text.replaceAll("\n", "\u21b5")}\u201d`;

// The prompt. Where there is no room for all of it, the styles leave out its head.
function promptOf(text) {
  const cut = text.lastIndexOf(" ", text.length - PROMPT_END);
  const head = cut > 0 ? [el("span", "sd-promptHead", text.slice(0, cut))] : [];
  return el("span", "sd-promptText", "", [...head, text.slice(Math.max(0, cut))]);
}

export function legend() {
  const items = KINDS.map(([kind, name, means]) => {
    const token = el("span", `sd-token ${kind}`, "", [word(kind, name)]);
    const parts = means.split(/[[\]]/).map((part, at) => el("span", at % 2 ? "sd-keyMore" : "", part));
    return el("li", `sd-key ${kind}`, "", [token, el("span", "sd-keyMeans", "", parts)]);
  });
  return el("ul", "sd-legend", "", items);
}
