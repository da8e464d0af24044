// The tab "How it works": a round of the shown race in three steps, why it is lossless, and Be the draft.
import { storyOf } from "./explain_steps.js";
import { el, fold } from "../lib/dom.js";
import { Game } from "./game.js";
import { doubtOf } from "../lib/figures.js";
import { formula } from "../lib/formula.js";
import { originOf } from "../lib/origins.js";
import { onRace } from "../race/current_race.js";
import { Steps } from "./step_player.js";
import { Tree } from "./tree.js";

const FIRST = "Run a race on the Race tab first. Its words and its times are shown here.";
const NO_GUESSES = "The race that is shown made no guesses. Run one with \u03b3 1 or more on the Race tab.";
const LOSSY = "The race that is shown used lossy acceptance, so this does not apply to it.";
const OTHER = "The race that is shown used an acceptance rule of another package, so this does not apply to it.";
const SERVER =
  "Servers ran the race that is shown, and their engine decided by its own rule. The two rules below are those of specdec, which did not look at that decision; compare the two texts.";
const BLOCK =
  "The race that is shown judged each draft as a block (Sun et al. 2403.10444): every place is tested, guesses are kept up to the last test that passes, and the replacement is drawn from norm(max(0, w p \u2212 q)), where w is the weight of the kept guesses. That is lossless too, and keeps more guesses.";

const PROOF =
  "min(p, q) + (1 \u2212 \u03a3 min(p, q)) \u00b7 norm(max(0, p \u2212 q)) = min(p, q) + max(0, p \u2212 q) = p";

export function mount(element) {
  const steps = new Steps();
  const game = new Game();
  const tree = new Tree();
  const origin = el("p", "sd-howLede");
  const greedy = reason(
    "Greedy",
    "A guess is kept only if it is the target's own choice. After a rejected guess the target writes its own choice. So the text is the target's text, token for token.",
  );
  const sampling = reason(
    "Sampling",
    "A guess is kept with probability $min(1, p / q)$: $p$ is its probability in the target, $q$ in the draft. After a rejected guess the replacement is drawn from $norm(max(0, p \u2212 q))$. So every token has the target's distribution $p$.",
  );
  const other = el("p", "sd-howNote"); // of a race with another verification
  const parts = el("div", "sd-howParts", "", [
    steps.node,
    el("section", "sd-howWhy", "", [
      el("h2", "", "Why it is lossless"),
      other,
      el("div", "", "", [greedy, sampling]),
      proof(),
    ]),
    game.node,
    tree.node,
  ]);
  element.classList.add("sd-howTab");
  element.replaceChildren(el("div", "sd-howHead", "", [el("h2", "", "One round in three steps"), origin]), parts);
  parts.hidden = true;
  origin.textContent = FIRST;
  onRace((race) => {
    if (!race) return; // another race runs: the shown one stays until its end
    const story = storyOf(race);
    parts.hidden = !story;
    origin.textContent = story ? ledeOf(race, story) : NO_GUESSES;
    if (!story) return;
    const { temperature } = story.lane.started.params;
    greedy.classList.toggle("ours", temperature === 0);
    sampling.classList.toggle("ours", temperature !== 0);
    const { acceptance } = story.lane.started;
    const notes = new Map([
      ["lossless", ""],
      ["block", story.lane.block ? BLOCK : ""],
      ["top-k", LOSSY],
    ]);
    other.textContent = story.server ? SERVER : (notes.get(acceptance) ?? OTHER);
    other.hidden = !other.textContent;
    steps.open(story);
    game.open(race, story);
    tree.open(race, story);
  });
}

function ledeOf(race, { round, lane, server }) {
  const { runs } = race.verdict;
  const run = runs > 1 ? `in one of ${runs} runs` : "1 run";
  return [
    `Round ${round.index} of ${lane.rounds.length - 1} of the race on the Race tab. ${originOf(race.begin)}, ${run}.`,
    server
      ? "The words are from this round."
      : "All words and times are from this round, unless a time is called a median.",
    server ? "" : doubtOf(race.verdict),
  ]
    .filter(Boolean)
    .join(" ");
}

function reason(name, words) {
  const mark = el("span", "sd-howOurs", "this race");
  return el("div", "sd-howReason", "", [el("h3", "", "", [el("span", "", name), mark]), set(words)]);
}

function proof() {
  return fold("sd-howProof", "The proof in two lines", [
    set(
      "The draft draws a token $x$, and it is kept with probability $q(x) \u00b7 min(1, p(x) / q(x)) = min(p(x), q(x))$. With the remaining probability, $1 \u2212 \u03a3 min(p, q)$, a replacement is drawn. It is $x$ with probability $max(0, p(x) \u2212 q(x)) / (1 \u2212 \u03a3 min(p, q))$. Both together:",
    ),
    el("p", "sd-howFormula", "", [formula(PROOF)]),
  ]);
}

// A paragraph, in which formulas stand between two $.
const set = (words) =>
  el(
    "p",
    "",
    "",
    words.split("$").map((part, at) => (at % 2 ? formula(part) : part)),
  );
