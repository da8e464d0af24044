// Explains the outcome of a race: in words, in figures, and as steps from plain `generate` to speculative.
import { el, fold, wide } from "../lib/dom.js";

export class Why {
  // `facts` makes the list of figures.
  constructor(facts) {
    this.facts = facts;
    this.words = el("p", "sd-timeWords");
    this.causes = el("ul", "sd-causes");
    this.steps = el("div", "sd-costs");
    this.steps.setAttribute("role", "img");
    this.figures = el("div");
    this.node = fold("sd-why", "Why", [this.words, this.causes, this.steps, this.figures]);
    this.hide();
  }

  hide() {
    this.node.hidden = true;
  }

  open(why) {
    this.node.hidden = !why;
    if (!why) return;
    if (wide()) this.node.open = true; // it has a column of its own
    this.node.firstChild.textContent = why.title;
    this.words.textContent = why.text;
    this.words.hidden = !why.text;
    this.causes.replaceChildren(...(why.causes ?? []).map((cause) => el("li", "", cause)));
    this.steps.hidden = !why.steps.length;
    this.steps.setAttribute(
      "aria-label",
      `Milliseconds per token. ${why.steps.map(([name, seconds]) => `${name}: ${signed(seconds)}`).join(", ")}`,
    );
    this.steps.replaceChildren(el("p", "sd-costTitle", "Milliseconds per token"), ...rowsOf(why.steps));
    this.figures.replaceChildren(...(why.figures.length ? [this.facts(why.figures)] : []));
  }
}

// A row for each step, whose bar begins where that of the step before it ends, and one for the sum.
function rowsOf(steps) {
  if (!steps.length) return [];
  const ends = [0];
  for (const [, seconds] of steps) ends.push(ends.at(-1) + seconds);
  const longest = Math.max(...ends);
  const row = (kind, name, from, to, number) => {
    const bar = el("span", `sd-costBar ${kind}`);
    bar.style.left = `${(100 * Math.max(0, Math.min(from, to))) / longest}%`;
    bar.style.width = `${(100 * Math.abs(to - from)) / longest}%`;
    return el("div", "sd-costRow", "", [
      el("span", "sd-costName", name),
      el("span", "sd-costTrack", "", [bar]),
      el("span", "sd-costNumber", number),
    ]);
  };
  return [
    ...steps.map(([name, seconds], at) =>
      at
        ? row(seconds < 0 ? "less" : "more", name, ends[at], ends[at + 1], signed(seconds))
        : row("whole", name, 0, seconds, (seconds * 1000).toFixed(2)),
    ),
    row("whole", "Speculative", 0, ends.at(-1), (ends.at(-1) * 1000).toFixed(2)),
  ];
}

const signed = (seconds) => `${seconds < 0 ? "\u2212" : "+"}${Math.abs(seconds * 1000).toFixed(2)}`;
