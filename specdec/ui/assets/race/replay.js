// The clock of a replay: measured seconds, slowed down or not, with the controls of a player.
import { button, drawSign, el, enlarge, isLarge, nextFrame, sign } from "../lib/dom.js";

const LARGER = "Larger text and strip, for a room"; // its first words are on the button where it has room
const LASTS = 8; // seconds of replay for the slowest lane
const SLOW = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export class Replay {
  #at = 0;
  #length = 0;
  #speed = 1;
  #off = null; // calls the next frame off
  #before = 0;
  #times = "measured"; // the times that are replayed

  // `show` draws a moment, in seconds; null is the end, with everything visible. `onRest` is called when the replay
  // stops.
  constructor(show, onRest = () => {}) {
    this.show = show;
    this.onRest = onRest;
    this.label = el("span", "sd-replayWords");
    this.clock = el("span", "sd-clock");
    this.toggle = sign("play", "Play", () => (this.playing ? this.pause() : this.play()));
    this.scrub = el("input", "sd-scrub");
    Object.assign(this.scrub, { type: "range", min: 0, max: 1000, value: 1000 });
    this.scrub.setAttribute("aria-label", "Moment of the replay");
    this.scrub.addEventListener("input", () => {
      this.pause();
      this.#to((this.scrub.value / 1000) * this.#length);
    });
    this.speeds = el("span", "sd-speeds");
    this.speeds.setAttribute("role", "group");
    this.speeds.setAttribute("aria-label", "Speed of the replay");
    this.larger = button("sd-icon sd-larger", "", () => this.#enlarge(), LARGER);
    this.larger.append(el("span", "sd-largerSign", "A+"), el("span", "sd-largerWords", "Larger text"));
    this.larger.title = LARGER;
    this.larger.setAttribute("aria-pressed", String(isLarge()));
    this.node = el("div", "sd-replay", "", [
      sign("start", "Replay from the start", () => this.restart()),
      this.toggle,
      sign("end", "Skip to the end", () => this.skip()),
      this.speeds,
      this.scrub,
      this.clock,
      this.label,
      this.larger,
    ]);
    this.node.hidden = true;
  }

  get playing() {
    return this.#off !== null;
  }

  // A race of this many seconds. Its end is shown until it is played.
  load(seconds, times = "measured") {
    this.#stop();
    this.#times = times;
    this.#length = seconds;
    this.#at = seconds;
    this.node.hidden = !(seconds > 0);
    const slow = SLOW.find((times) => seconds * times >= LASTS * 0.7) ?? SLOW.at(-1);
    const fast = SLOW.find((times) => seconds / times <= LASTS * 2) ?? SLOW.at(-1);
    const choices = slow > 2 ? [1 / slow, 1 / 2, 1] : slow === 2 ? [1 / 2, 1] : fast > 1 ? [1, fast] : [1];
    this.speeds.replaceChildren(...choices.map((speed) => button("sd-speed", nameOf(speed), () => this.#pace(speed))));
    this.#pace(slow > 1 ? 1 / slow : choices.at(-1));
    this.#mark();
    this.show(null);
  }

  // There is nothing to replay: everything is visible.
  hide() {
    this.#stop();
    this.node.hidden = true;
    this.show(null);
  }

  restart() {
    this.#to(0);
    this.play();
  }

  play() {
    if (this.#at >= this.#length) this.#to(0);
    this.#stop();
    this.#before = performance.now();
    this.#off = nextFrame(() => this.#tick());
    this.#mark();
  }

  pause() {
    this.#stop();
    this.#mark();
  }

  skip() {
    this.#stop();
    this.#to(this.#length);
  }

  #enlarge() {
    enlarge(!isLarge());
    this.larger.setAttribute("aria-pressed", String(isLarge()));
  }

  #tick() {
    this.#off = nextFrame(() => this.#tick());
    const now = performance.now();
    const at = this.#at + ((now - this.#before) / 1000) * this.#speed;
    this.#before = now;
    if (at >= this.#length) this.#stop();
    this.#to(Math.min(at, this.#length));
  }

  #to(seconds) {
    this.#at = seconds;
    this.scrub.value = this.#length ? Math.round((seconds / this.#length) * 1000) : 1000;
    this.#mark();
    this.show(seconds >= this.#length ? null : seconds);
    if (!this.playing) this.onRest();
  }

  #stop() {
    this.#off?.();
    this.#off = null;
  }

  #pace(speed) {
    this.#speed = speed;
    for (const choice of this.speeds.children) {
      choice.setAttribute("aria-pressed", String(choice.textContent === nameOf(speed)));
    }
    this.label.textContent = `Replay of ${this.#times} times, ${speed === 1 ? "real" : nameOf(speed)} speed`;
  }

  #mark() {
    const name = this.playing ? "Pause" : "Play";
    if (this.toggle.getAttribute("aria-label") !== name) {
      this.toggle.setAttribute("aria-label", name);
      drawSign(this.toggle, name.toLowerCase());
    }
    const digits = this.#length < 10 ? 2 : 1;
    this.clock.textContent = `${this.#at.toFixed(digits)} of ${this.#length.toFixed(digits)}\u00a0s`;
    this.scrub.setAttribute("aria-valuetext", `${this.#at.toFixed(digits)} of ${this.#length.toFixed(digits)} seconds`);
  }
}

const nameOf = (speed) => (speed >= 1 ? `${speed}\u00d7` : `1/${Math.round(1 / speed)}\u00d7`);
