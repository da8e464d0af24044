// What the tab "How it works" takes from a race: a round that shows the method, its words, and the times of its
// passes.
import { isAlike } from "../lib/definitions.js";
import { placesTogether } from "../lib/digits.js";
import { fromWord, TokenText } from "../race/lines.js";

const CONTEXT = 40; // characters of the text before a round
const RATIO = 1; // decimal places of a ratio
const USUAL = 1.25; // times the median: a round that took longer was slowed, and does not show what the method does
const NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split(" ");

export const keptOf = (round) => round.draft.filter((token) => token.status === "accepted").length;
export const writtenBy = (lane) => lane.rounds.flatMap((round) => round.committed_ids);
export const startOf = (lane, round) => writtenBy({ rounds: lane.rounds.slice(0, round.index) }).length;

// The rounds whose draft has the usual length, because the last draft of a text is often shorter.
export function fullRounds(lane) {
  const rounds = lane.rounds.filter((round) => round.index > 0 && round.draft?.length);
  const often = (length) => rounds.filter((round) => round.draft.length === length).length;
  const [usual] = rounds.map((round) => round.draft.length).sort((one, other) => often(other) - often(one));
  return rounds.filter((round) => round.draft.length === usual);
}

// The round that shows most: kept guesses, a rejected one, and guesses after it, in a time as usual. Undefined if nothing
// was guessed.
export function tellingRound(race, lane) {
  const full = fullRounds(lane);
  const took = (round) => spent(lane, round.index - 1, round.index);
  const usual = USUAL * medianOf(full.map(took));
  const plain = plainOf(race.lanes);
  const alone = USUAL * (plain ? medianOf(steps(plain)) : 0);
  const slowed = (round) => round.committed_ids.length * alone < sum(aloneOf(plain, lane, round) ?? []);
  const worth = (round) => {
    const kept = keptOf(round);
    const missed = round.draft[kept];
    const words = [...round.draft.map((token) => token.token_id), ...round.committed_ids].map((id) => textOf(race, id));
    return (
      (round.token_id === null ? 0 : 16) + // else the text ended inside the draft
      (kept >= 2 ? 8 : 0) +
      (missed ? 8 : 0) +
      (missed && kept + 1 < round.draft.length ? 4 : 0) +
      (took(round) <= usual && !slowed(round) ? 4 : 0) +
      (words.every((word) => /^ ?[\p{L}'.,!?]+$/u.test(word)) ? 2 : 0) +
      (missed && [missed.token_id, round.token_id].every((id) => /^ \p{L}{2,}$/u.test(textOf(race, id))) ? 1 : 0) +
      kept / 100
    );
  };
  const worths = full.map(worth);
  return full[worths.indexOf(Math.max(...worths))];
}

export const textOf = (race, id) => new TextDecoder().decode(Uint8Array.from(race.bytes.get(id) ?? []));
export const isWord = (text) => /^ ?\p{L}{2,}$/u.test(text);

// The words of a round: the end of the text before it, and what each of its tokens adds.
export function wordsOf(race, lane, round) {
  const text = new TokenText(race.bytes, lane.started.head);
  const before = [...lane.started.prompt_ids, ...writtenBy(lane).slice(0, startOf(lane, round))];
  const pieces = before.map((id) => text.push(id));
  const last = pieces.pop() ?? "";
  const kept = round.committed_ids.slice(0, keptOf(round));
  const guesses = text.peek(round.draft.map((token) => token.token_id));
  const added = round.token_id === null ? null : text.peek([...kept, round.token_id]).at(-1);
  return { context: endOf(pieces.join("")), last, guesses, added };
}

// The end of a long text, from the beginning of a word on.
export function endOf(text, length = CONTEXT) {
  if (text.length <= length) return text;
  return `\u2026${fromWord(text.slice(-length))}`;
}

// Seconds of the passes, from the race only; null if it does not have them.
export function timesOf(lanes, lane, round) {
  const plain = plainOf(lanes);
  const same = fullRounds(lane).filter((other) => other.draft.length === round.draft.length);
  return {
    draft: round.draft_seconds ?? null,
    check: medianOf(same.map((other) => other.verify_seconds)),
    checks: same.length,
    one: plain
      ? (medianOf(plain.rounds.slice(1).map((other) => other.verify_seconds)) ?? medianOf(steps(plain)))
      : null,
    ones: plain ? plain.rounds.length - 1 : 0,
    oneIsLoop: plain === lanes.get("speculative:0"),
    onServer: lane.server !== null,
    // When a server's tokens arrive is not when its round ended.
    round: lane.server ? null : spent(lane, round.index - 1, round.index),
    verify: round.verify_seconds ?? null,
    // The same tokens written one per pass, each with its own pass.
    alone: aloneOf(plain, lane, round),
  };
}

// The lane that writes one token per pass; undefined if there is none.
function plainOf(lanes) {
  const loop = lanes.get("speculative:0");
  return loop?.rounds.length > 1 ? loop : lanes.get("generate");
}

// The seconds of each token of a round in the lane that writes one per pass; null if they are not known.
function aloneOf(plain, lane, round) {
  if (!plain) return null;
  const start = startOf(lane, round);
  return eachOf(round.committed_ids.map((_, at) => spent(plain, start + at - 1, start + at)));
}

function spent(lane, from, to) {
  const [before, after] = [lane.rounds[from], lane.rounds[to]];
  return before && after ? after.elapsed_seconds - before.elapsed_seconds : null;
}

const eachOf = (values) => (values.includes(null) ? null : values);
const steps = (lane) => lane.rounds.slice(1).map((_, at) => spent(lane, at, at + 1));

export function medianOf(values) {
  const known = values.filter((value) => value !== null && value !== undefined).sort((one, other) => one - other);
  if (!known.length) return null;
  const middle = known.length >> 1;
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

// A single token, with signs for invisible characters. Characters that change the direction of text are signs too.
export function shown(piece) {
  if (piece === "") return "\u00b7"; // a part of a character
  const text = piece
    .replaceAll("\n", "\u21b5")
    .replaceAll("\t", "\u21e5")
    .replace(/[\u0000-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, "\u25a1");
  return text.trim() || "\u2423".repeat(Math.min(text.length, 4));
}

export const inWords = (count) => NUMBERS[count] ?? String(count);
export const counted = (count, one, more = `${one}s`) => `${inWords(count)} ${count === 1 ? one : more}`;
export const sentence = (words) => words[0].toUpperCase() + words.slice(1);

export const milliseconds = (seconds, places = placesOf(seconds)) => `${(seconds * 1000).toFixed(places)}\u00a0ms`;

const placesOf = (seconds) => (seconds < 0.001 ? 2 : seconds < 0.09995 ? 1 : 0);
const written = (ratio) => ratio.toFixed(RATIO);

// The decimal places of two times in milliseconds that stand beside their ratio.
export const placesBeside = (one, other) =>
  placesTogether([one * 1000, other * 1000], [[0, 1, RATIO]], Math.max(placesOf(one), placesOf(other)));

// The ratio of two times in words. Both were measured, so a small difference is none.
export function ratioInWords(ratio) {
  if (isAlike(ratio)) return "as long as";
  return `${written(ratio)} times as long as`;
}

// Whether both would be written the same.
export const sameRatio = (one, other) => written(one) === written(other);

export const sum = (values) => values.reduce((total, value) => total + value, 0);
