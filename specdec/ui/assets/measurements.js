// The tabs that measure: Start and Stop change places, and what a measurement found is read out.
import { el } from "./dom.js";

const DRAWN = 100; // milliseconds until Gradio has drawn the last value

export class Measurements {
  #known = new Map(); // what each tab had found before its present measurement
  #timer = 0;

  constructor() {
    this.spoken = el("p", "sd-spoken");
    this.spoken.setAttribute("aria-live", "polite");
    (document.querySelector("main") ?? document.body).append(this.spoken); // heard from every tab
  }

  say(words) {
    this.spoken.textContent = words;
  }

  go(name) {
    swap(`sd-${name}-running`, true, `#sd-${name}-start`, `#sd-${name}-stop`);
    clearTimeout(this.#timer); // what the one before it found is not read out into this one
    this.say("");
    this.#known.set(name, shownIn(name));
  }

  rest(name) {
    swap(`sd-${name}-running`, false, `#sd-${name}-start`, `#sd-${name}-stop`);
    this.#timer = setTimeout(() => {
      // Compared as text: Gradio writes new findings into the old elements. A stopped one may have found nothing.
      if (shownIn(name) !== this.#known.get(name)) this.say(findingOf(name)?.textContent ?? "");
    }, DRAWN);
  }
}

// What a tab's measurement found.
const findingOf = (name) => document.querySelector(`#sd-${name}-verdict .sd-headline`);

// What is shown of it, without the seconds that Gradio counts in the same place while a job runs.
const shownIn = (name) =>
  [...document.querySelectorAll(`#sd-${name}-verdict :is(.sd-headline, .sd-doubts)`)]
    .map((part) => part.textContent)
    .join("\n");

// Start and Stop change places: a keyboard that stood on the one stands on the other.
export function swap(mark, running, start, stop) {
  const held = document.activeElement?.closest?.(running ? start : stop);
  document.body.classList.toggle(mark, running);
  if (held) document.querySelector(running ? stop : start)?.focus({ preventScroll: true });
}
