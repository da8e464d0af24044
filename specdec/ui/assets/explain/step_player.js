// Plays the three steps one after another when they are visible, with controls. With reduced motion each press is a
// step.
import { actsOf } from "./explain_steps.js";
import { button, drawSign, el, nextFrame, reducedMotion, sign } from "../lib/dom.js";

const REST = 0.9; // seconds between two steps
const SHORTEST = 0.05; // the least seconds of a step, because a draft may take almost no time

export class Steps {
  #acts = [];
  #at = 0; // the shown step; earlier ones are done, later ones have not begun
  #done = 0; // progress of that step, 0 to 1
  #rested = 0;
  #off = null; // calls the next frame off; null while nothing plays
  #before = 0;
  #waits = false; // that must be visible before it plays by itself

  constructor() {
    this.strip = el("ol", "sd-howSteps");
    this.toggle = button("sd-howButton", "", () => (this.#off ? this.#pause() : this.#press()));
    this.toggleSign = el("span", "sd-howSign");
    this.toggleWords = el("span");
    this.toggle.append(this.toggleSign, this.toggleWords);
    this.note = el("p", "sd-howNote");
    this.node = el("section", "sd-howStory", "", [
      el("div", "sd-howControls", "", [
        this.toggle,
        sign("back", "Previous step", () => this.#go(this.#at - 1)),
        sign("on", "Next step", () => this.#go(this.#at + 1)),
        this.note,
      ]),
      this.strip,
    ]);
    this.node.setAttribute("aria-label", "A round in three steps");
    this.watch = new IntersectionObserver((entries) => this.#see(entries), { threshold: 0.5 });
  }

  open(story) {
    this.#stop();
    this.watch.disconnect();
    this.#acts = actsOf(story);
    this.strip.replaceChildren(...this.#acts.map((act, at) => panel(act, at)));
    const scale = this.#acts.some((act) => act.rows.length) ? " All bars share one scale." : "";
    const pace = story.pace > 1 && !reducedMotion();
    this.note.textContent =
      `${pace ? `Steps 1 and 2 play ${story.pace} times slower than measured.` : ""}${scale}`.trim();
    this.#waits = !reducedMotion();
    if (this.#waits) this.#to(0, 0);
    else this.#to(this.#acts.length - 1, 1);
    for (const act of this.#acts) this.watch.observe(act.stage);
  }

  get over() {
    return this.#at === this.#acts.length - 1 && this.#done === 1;
  }

  #see(entries) {
    for (const { target, isIntersecting } of entries)
      this.#acts.find((act) => act.stage === target).seen = isIntersecting;
    if (this.#waits && !this.#off && this.#next() !== -1) this.#run();
  }

  // It plays visible steps by itself. On a phone the next step waits until the page is scrolled to it.
  #next() {
    return this.#acts.findIndex((act, at) => act.seen && (at > this.#at || (at === this.#at && this.#done < 1)));
  }

  #press() {
    if (this.over) return this.#go(0);
    this.#waits = false;
    if (reducedMotion()) this.#go(this.#at + 1);
    else this.#run();
  }

  // Shows a step from its beginning; with reduced motion at its end.
  #go(at) {
    if (at < 0 || at >= this.#acts.length) return;
    this.#waits = false;
    this.#stop();
    this.#to(at, reducedMotion() ? 1 : 0);
    if (!reducedMotion()) this.#run();
  }

  #run() {
    this.#before = performance.now();
    this.#off = nextFrame(() => this.#tick());
    this.#show();
    this.#mark();
  }

  #tick() {
    const now = performance.now();
    const passed = (now - this.#before) / 1000;
    this.#before = now;
    this.#off = nextFrame(() => this.#tick());
    if (this.#done === 1) {
      this.#rested += passed;
      if (this.#rested >= REST) this.#follow();
    } else if (this.#waits && !this.#acts[this.#at].seen) this.#follow();
    else this.#to(this.#at, Math.min(1, this.#done + passed / Math.max(this.#acts[this.#at].seconds, SHORTEST)));
    if (this.over) this.#pause();
  }

  #follow() {
    const next = this.#waits ? this.#next() : this.#at + 1;
    if (next === -1)
      this.#pause(); // until one is visible
    else this.#to(next, 0);
  }

  #to(at, done) {
    this.#at = at;
    this.#done = done;
    this.#rested = 0;
    this.#show();
    this.#mark();
  }

  // Only the step that plays is incomplete: a later one shows its end until its turn, so that no panel is empty. With
  // reduced motion nothing plays, and a later step appears when its turn comes.
  #show() {
    const waiting = this.#waits && !this.#off;
    this.#acts.forEach((act, place) => {
      const share = place < this.#at ? 1 : place === this.#at ? this.#done : 0;
      act.show(waiting || (place > this.#at && !reducedMotion()) ? 1 : share);
      act.node.style.setProperty("--done", String(share));
      act.node.classList.toggle("current", place === this.#at);
    });
  }

  #pause() {
    this.#stop();
    this.#show();
    this.#mark();
  }

  #stop() {
    this.#off?.();
    this.#off = null;
  }

  #mark() {
    const words = this.#off ? "Pause" : this.over ? "Play again" : "Play";
    if (this.toggleWords.textContent === words) return;
    this.toggleWords.textContent = words;
    drawSign(this.toggleSign, this.#off ? "pause" : "play");
  }
}

// The pictures are for the eye. A screen reader reads the words beside them.
function panel(act, at) {
  act.stage = el("div", "sd-howStage", "", [
    el("div", "sd-howLines", "", act.lines),
    el(
      "div",
      "sd-howRows",
      "",
      act.rows.map((row) => row.node),
    ),
  ]);
  act.stage.setAttribute("aria-hidden", "true");
  act.node = el("li", "sd-howStep", "", [
    el("h3", "", "", [el("span", "sd-howNumber", String(at + 1)), el("span", "", act.title)]),
    act.stage,
    el("div", "sd-howWords", "", [
      el("p", "", act.caption),
      ...(act.note ? [el("p", "sd-howNote", act.note)] : []),
      ...(act.spoken ? [el("p", "sd-howSpoken", act.spoken)] : []),
    ]),
  ]);
  return act.node;
}
