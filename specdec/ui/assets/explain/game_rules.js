// The rules of "Be the draft": which rounds are played, what can be chosen, and what the target decides.
import { fullRounds, isWord, keptOf, shown, startOf, textOf, writtenBy } from "./explain_data.js";

const ROUNDS = 4;
const LONGEST = 6; // guesses per round; more would be tedious
const CHOICES = 4;

// Rounds from the whole text. None of them shows the answer of another one, or of the round `told`.
export function gameRounds(race, lane, told) {
  const written = writtenBy(lane);
  const pieces = written.map((id) => textOf(race, id));
  const apart = [];
  let free = 0; // the first place that was not shown
  for (const round of fullRounds(lane)) {
    const start = startOf(lane, round);
    const length = Math.min(round.draft.length, LONGEST);
    const truth = written.slice(start, start + length + 1);
    const toldThere = told && start < startOf(lane, told) + told.committed_ids.length;
    const whole = pieces.slice(start, start + truth.length).every((piece) => piece && !piece.includes("\ufffd"));
    if (truth.length <= length || start < free || !whole) continue;
    if (toldThere && start + length + 1 > startOf(lane, told)) continue;
    apart.push({ round, start, length, truth, kept: Math.min(keptOf(round), length) });
    free = start + truth.length;
  }
  const count = Math.min(ROUNDS, apart.length);
  return Array.from({ length: count }, (_, at) => apart[Math.floor(((at + 0.5) * apart.length) / count)]);
}

// The choices at a place of a round: the target's token, the draft's, and other likely ones.
export function choicesOf(race, lane, game, place) {
  const truth = game.truth[place];
  const random = randomFrom(game.round.index * 64 + place);
  const likely = lane.rounds.flatMap((round) => topsOf(round));
  const words = shuffled([...new Set([...writtenBy(lane), ...likely])], random);
  const pool = [...words, ...lane.started.prompt_ids];
  const like = pool.filter((id) => kindOf(textOf(race, id)) === kindOf(textOf(race, truth)));
  const chosen = new Map(); // displayed text -> id
  const before = shown(textOf(race, writtenBy(lane)[game.start + place - 1]));
  for (const id of [truth, ...likelyAt(lane, game, place), ...like, ...pool]) {
    const text = textOf(race, id);
    const name = shown(text);
    const fits = id === truth || (text && !text.includes("\ufffd") && name !== before);
    if (fits && !chosen.has(name)) chosen.set(name, id);
    if (chosen.size === CHOICES) break;
  }
  return shuffled([...chosen.values()], random);
}

// The models' own likely tokens at this place, the draft's guess first.
function likelyAt(lane, game, place) {
  const at = game.start + place;
  const guesses = [game.round.draft[place]?.token_id];
  const tops = [];
  let start = 0;
  for (const round of lane.rounds) {
    const kept = round.draft ? keptOf(round) : 0;
    const added = start + round.committed_ids.length - 1;
    if (round.draft && at >= start && at <= start + kept && at - start < round.draft.length)
      guesses.unshift(round.draft[at - start].token_id); // after the true text
    if (at === added) tops.push(...topsOf(round));
    start += round.committed_ids.length;
  }
  return [...guesses, ...tops].filter((id) => id !== undefined && id !== null); // a server does not tell all guesses
}

const topsOf = ({ decision }) => [...(decision?.p ?? []), ...(decision?.q ?? [])].map(([id]) => id);

// Words with a leading space, parts of words, and the rest.
const kindOf = (text) => (isWord(text) ? (text.startsWith(" ") ? "word" : "part") : "sign");

// The verdict on the guesses by a target that writes `truth`.
export function verdictOf(guesses, truth) {
  const miss = guesses.findIndex((id, place) => id !== truth[place]);
  const kept = miss === -1 ? guesses.length : miss;
  const kinds = guesses.map((_, place) => (place < kept ? "accepted" : place === kept ? "rejected" : "discarded"));
  return { kept, kinds, added: truth[kept], addedKind: miss === -1 ? "bonus" : "correction", wrote: kept + 1 };
}

// The same numbers for the same seed (mulberry32), so that a round offers the same choices each time.
function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function shuffled(values, random) {
  const order = [...values];
  for (let end = order.length - 1; end > 0; end--) {
    const other = Math.floor(random() * (end + 1));
    [order[end], order[other]] = [order[other], order[end]];
  }
  return order;
}
