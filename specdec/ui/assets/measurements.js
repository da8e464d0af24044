// The tabs that measure: swaps Start and Stop, and lets screen readers read the findings.
import { el } from "./lib/dom.js";

const DRAWN = 100; // milliseconds until Gradio has drawn the last value

export class Measurements {
  #known = new Map(); // the findings of each tab before its present measurement
  #timer = 0;

  constructor() {
    this.spoken = el("p", "sd-spoken");
    this.spoken.setAttribute("aria-live", "polite");
    (document.querySelector("main") ?? document.body).append(this.spoken); // listens in every tab
  }

  say(words) {
    this.spoken.textContent = words;
  }

  go(name) {
    swap(`sd-${name}-running`, true, `#sd-${name}-start`, `#sd-${name}-stop`);
    clearTimeout(this.#timer); // the earlier findings are not read out into this one
    this.say("");
    this.#known.set(name, shownIn(name));
  }

  rest(name) {
    swap(`sd-${name}-running`, false, `#sd-${name}-start`, `#sd-${name}-stop`);
    this.#timer = setTimeout(() => {
      // Compared as text, because Gradio writes new findings into the old elements. A stopped measurement may have
      // none.
      if (shownIn(name) !== this.#known.get(name)) this.say(findingOf(name)?.textContent ?? "");
    }, DRAWN);
  }
}

// The findings of a tab's measurement.
const findingOf = (name) => document.querySelector(`#sd-${name}-verdict .sd-headline`);

// The shown findings, without the seconds that Gradio counts there while a job runs.
const shownIn = (name) =>
  [...document.querySelectorAll(`#sd-${name}-verdict :is(.sd-headline, .sd-verdictNotes)`)]
    .map((part) => part.textContent)
    .join("\n");

// Swaps Start and Stop. The keyboard's place moves from one to the other.
export function swap(mark, running, start, stop) {
  const held = document.activeElement?.closest?.(running ? start : stop);
  document.body.classList.toggle(mark, running);
  if (!held) return;
  const others = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(running ? stop : start)]);
  others.find((other) => other.offsetParent)?.focus({ preventScroll: true });
}
