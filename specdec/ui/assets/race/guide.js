// Three short words on the first replay that a browser shows: what blue, a block of the strip, and the slower text mean.
import { el } from "../lib/dom.js";

const KEPT = "specdec-guided"; // in the browser's storage, once a replay was guided
const GAP = 10; // pixels between a word and what it is about
const WORDS = [
  [
    ".sd-box.speculative .sd-boxBody",
    "Blue: guesses that the target kept. Orange: its own token where a guess was wrong.",
  ],
  [".sd-stripRow.speculative", "Each dark block is one pass of the target. It checks all guesses of a round at once."],
  [".sd-box.generate .sd-boxBody", "Plain generate writes the same text with one pass a token, so it is still busy."],
];

export class Guide {
  #open = false; // whether this replay is guided
  #shown = -1;

  // `root` holds what the words are about.
  constructor(root) {
    this.root = root;
    this.node = el("div", "sd-guide");
    this.node.setAttribute("aria-hidden", "true"); // the verdict and How it works say the same
    this.node.hidden = true;
    root.append(this.node);
  }

  // A replay plays from its start.
  begin() {
    this.#open = !remembered();
  }

  // `part` of the replay is over, 0 to 1; null when it does not play.
  show(part) {
    if (!this.#open || (part === null && this.#shown < 0)) return; // it is about to play
    const at = part === null ? WORDS.length : Math.floor(part * WORDS.length);
    if (at >= WORDS.length) return this.#end();
    if (at !== this.#shown) this.#place(at);
  }

  #place(at) {
    const [selector, words] = WORDS[at];
    const anchor = this.root.querySelector(/** @type {any} */ (selector));
    if (!anchor) return;
    this.#shown = at;
    this.node.textContent = words;
    this.node.hidden = false;
    const [home, box] = [this.root.getBoundingClientRect(), anchor.getBoundingClientRect()];
    const left = Math.min(box.left - home.left + GAP, home.width - this.node.offsetWidth);
    this.node.style.left = `${Math.max(0, left)}px`;
    this.node.style.top = `${box.bottom - home.top + GAP}px`;
  }

  #end() {
    this.#open = false;
    this.#shown = -1;
    this.node.hidden = true;
    try {
      localStorage.setItem(KEPT, "1");
    } catch {
      // The storage is switched off, so the next visit is guided too.
    }
  }
}

function remembered() {
  try {
    return localStorage.getItem(KEPT) !== null;
  } catch {
    return false;
  }
}
