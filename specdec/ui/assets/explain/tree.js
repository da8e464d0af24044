// A tree of guesses, for teaching: what a second guess at one place would have kept in a round of the shown race, and
// which tokens each row of such a check sees. It is computed from the draft's recorded choices; nothing like it ran.
import { el, fold } from "../lib/dom.js";
import { counted, shown, textOf, wordsOf } from "./explain_data.js";

const LEDE =
  "A draft can also make two guesses at one place. One pass checks both branches, if each token sees only the tokens before it on its own branch. specdec does not do this.";
const COSTS =
  "Every branch is one more row to check, and here only one token more is counted per round, because nothing is recorded of what follows it.";

const NOT_TOLD =
  "A tree needs the draft's other choices. A server does not tell them, so none is drawn for the race that is shown.";

// The rounds whose first rejected guess stood beside other choices of the draft, each with these choices' ids.
function missesOf(lane) {
  return lane.rounds.flatMap((round) => {
    const place = missOf(round);
    const q = round.decision?.q;
    if (place === null || !q?.length || round.token_id === null) return [];
    const others = q.map(([id]) => id).filter((id) => id !== round.draft[place].token_id);
    return [{ round, place, others }];
  });
}

// The place of a round's rejected guess; null if it has none.
function missOf(round) {
  const place = (round.draft ?? []).findIndex((token) => token.status === "rejected");
  return place < 0 ? null : place;
}

export class Tree {
  constructor() {
    this.body = el("div", "sd-howTree");
    this.node = fold("sd-howTreeFold", "A tree of guesses", [this.body]);
  }

  // Shows the race of ``story``, or hides itself where the race does not have what it needs.
  open(race, story) {
    const { lane } = story;
    this.node.hidden = false;
    if (lane.server) return this.body.replaceChildren(el("p", "", NOT_TOLD));
    const misses = lane.started.params.temperature === 0 ? missesOf(lane) : [];
    const second = misses.filter(({ round, others }) => others[0] === round.token_id);
    this.node.hidden = misses.length === 0;
    if (this.node.hidden) return;
    const told =
      second.find(({ round }) => round === story.round) ?? second.find(({ place }) => place > 0) ?? second[0];
    const rounds = counted(misses.length, "round");
    const kept = `In ${rounds} of this race a guess was rejected. In ${second.length} of them the target's token was the draft's second choice, so a second branch there would have kept it.`;
    this.body.replaceChildren(
      el("p", "", LEDE),
      el("p", "", `${kept} ${COSTS}`),
      ...(told ? [picture(race, lane, told)] : []),
    );
  }
}

// The branches of one round as a line of words, and below it which row of the pass sees which token.
function picture(race, lane, { round, place }) {
  const { last } = wordsOf(race, lane, round);
  const words = round.draft.slice(0, place + 1).map((token) => shown(textOf(race, token.token_id)));
  const other = shown(textOf(race, round.token_id));
  const names = [shown(last), ...words, other];
  const trunk = words.slice(0, place).map((word) => el("span", "sd-treeKept", word));
  const branches = el("span", "sd-treeBranches", "", [
    el("span", "sd-treeLost", words[place]),
    el("span", "sd-treeKept", other),
  ]);
  const line = el("p", "sd-treeLine", "", [el("span", "sd-treeLast", shown(last)), ...trunk, branches]);
  const head = el("tr", "", "", [el("td"), ...names.map((name) => el("th", "", name))]);
  const rows = names.map((name, row) =>
    el("tr", "", "", [el("th", "", name), ...names.map((_, at) => cell(row, at, place))]),
  );
  const caption = el(
    "caption",
    "",
    `Round ${round.index}: which tokens (columns) each row of the pass sees. The last two rows are two branches.`,
  );
  return el("div", "", "", [
    line,
    el("table", "sd-treeMask", "", [caption, el("thead", "", "", [head]), el("tbody", "", "", rows)]),
  ]);
}

// Whether the row sees the token: itself and what is before it, but not the other branch.
function cell(row, at, place) {
  const sees = at <= row && !(row === place + 2 && at === place + 1);
  const node = el("td", sees ? "sees" : "");
  node.append(el("span", "sd-spoken", sees ? "sees" : "does not see"));
  return node;
}
