// Three short words on the first replay that a browser shows: what blue, a block of the strip, and the slower text mean.
// They stand in the place of the legend, so that nothing moves.
import { el } from "../lib/dom.js";

const KEPT = "specdec-guided"; // in the browser's storage, once a replay was guided
const WORDS = [
  "Blue: guesses that the target kept. Orange: its own token where a guess was wrong.",
  "Each long block is one pass of the target. It checks all guesses of a round at once.",
  "Plain generate writes the same text with one pass a token, so it is still busy.",
];

// The same for servers.
const ON_SERVERS = [
  WORDS[0],
  "Each block is one round of the server: it drafts, and one pass checks all guesses.",
  "The plain server writes the same text with one pass a token, so it is still busy.",
];

export class Guide {
  #words = WORDS;
  #open = false; // whether this replay is guided
  #shown = -1;

  // `place` holds the legend.
  constructor(place) {
    this.place = place;
    this.node = el("p", "sd-guide");
    this.node.setAttribute("aria-hidden", "true"); // the verdict and How it works say the same
    this.node.hidden = true;
    place.append(this.node);
  }

  // A replay plays from its start, of a race on servers or of another one.
  begin(onServers = false) {
    const words = onServers ? ON_SERVERS : WORDS;
    // On a phone the strip, which the second word explains, is below the window.
    this.#words = matchMedia("(max-width: 640px)").matches ? [words[0], words[2]] : words;
    this.#open = !remembered();
  }

  // `part` of the replay is over, 0 to 1; null when it does not play.
  show(part) {
    if (!this.#open || (part === null && this.#shown < 0)) return; // it is about to play
    const at = part === null ? this.#words.length : Math.floor(part * this.#words.length);
    if (at >= this.#words.length) return this.#end();
    if (at === this.#shown) return;
    this.#shown = at;
    this.node.textContent = this.#words[at];
    this.node.hidden = false;
    this.place.classList.add("guided");
  }

  #end() {
    this.#open = false;
    this.#shown = -1;
    this.node.hidden = true;
    this.place.classList.remove("guided");
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
