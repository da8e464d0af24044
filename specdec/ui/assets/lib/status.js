// The messages above the verdict: why nothing happens yet, and what went wrong.
import { el } from "./dom.js";
import { addPlace } from "./errors.js";

const QUEUE = "#sd-waiting, #sd-server-waiting"; // what the server says of the queue, for each tab that races
const SLOW = 800; // milliseconds after which the page says why a race has not begun
const LOOK = 250; // milliseconds between two looks at what the server says; it may draw its message anew at any time

export class Status {
  #stopping = false;
  #running = false; // whether the error only holds while a race runs
  #timer = 0;
  #looks = 0;

  constructor() {
    this.error = el("p", "sd-error");
    this.error.setAttribute("role", "alert");
    this.error.hidden = true;
    addPlace(this.error, (gone) => gone(this.error) && this.clear());
    this.node = el("p", "sd-status");
    this.node.setAttribute("role", "status");
    this.node.hidden = true;
  }

  say(words) {
    this.node.textContent = words;
    this.node.hidden = false;
  }

  // A race was asked for, or waits no longer.
  wait(waiting) {
    clearTimeout(this.#timer);
    clearInterval(this.#looks);
    this.#stopping = false;
    this.node.hidden = true;
    if (!waiting && this.#running) this.clear();
    if (!waiting) return;
    this.#sayAhead();
    this.#looks = setInterval(() => this.#sayAhead(), LOOK);
    this.#timer = setTimeout(() => (this.node.hidden = false), SLOW);
  }

  stopping() {
    this.#stopping = true;
    this.say("Stopping \u2026");
  }

  // `running`: it only holds while a race runs.
  fail(message, running = false) {
    this.#running = running;
    this.error.textContent = message;
    this.error.hidden = false;
    this.error.scrollIntoView({ block: "nearest" });
  }

  clear() {
    this.#running = false;
    this.error.hidden = true;
  }

  // The server's message about the queue, when it has sent one.
  #sayAhead() {
    if (this.#stopping) return;
    const ahead = [...document.querySelectorAll(QUEUE)].map((told) => told.textContent.trim()).find(Boolean);
    const words = ahead ? `Waiting: ${ahead}` : "Waiting: the machine is busy.";
    if (this.node.textContent !== words) this.node.textContent = words; // said once by a screen reader
  }
}
