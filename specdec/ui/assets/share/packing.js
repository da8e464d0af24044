// A race as few bytes for a link: facts and token texts as packed text, rounds as columns of small numbers. It has
// token texts, statuses and times, but no probabilities.
import { BitWriter } from "./bit_coding.js";
import { Numbering, hasUntold, packLane, unpackLane } from "./columns.js";
import { OtherVersion, join, seal, unseal } from "./envelope.js";
import { labelOf, laneKeys, laneOf } from "../lib/lanes.js";
import { ruleOf, withNames, withoutNames } from "./nameless.js";
import { VERSION } from "../race/race.js";

const [BEGIN, STARTED, VERDICT] = ["begin", "started", "verdict"].map(ruleOf);
const TABLES = { lanes: null, places: null, passes: null, checks: null };
const LEFT_OUT = { ...TABLES, details: null, time: null, whatif: null }; // of a verdict

// null if the race is too long for a link.
export async function pack(race) {
  // In the order of the page, because in the drawn run another lane may have started first.
  const lanes = race.begin.lanes.map((key) => race.lanes.get(key)).filter(Boolean);
  const bits = new BitWriter();
  const numbering = new Numbering();
  bits.column(lanes[0].started.prompt_ids.map((id) => numbering.code(id)));
  lanes.forEach((lane, at) => packLane(lane, lanes.slice(0, at), bits, numbering));
  const texts = numbering.ids.map((id) => race.bytes.get(id) ?? []);
  bits.column(texts.map((bytes) => bytes.length));
  return seal(JSON.stringify(factsOf(race, lanes), rounded), bits, texts);
}

// The lines again; a value is missing where the bytes have none. Throws an Error if the bytes are damaged.
export async function unpack(bytes) {
  const { facts, texts: joined, bits } = await unseal(bytes);
  const [version, start, lanes, end] = facts;
  if (version !== VERSION) throw new OtherVersion("It was made by another version of this page.");
  if (lanes.length > laneKeys().length) throw new RangeError("too many lanes");
  const begin = withNames(start, BEGIN);
  const numbering = new Numbering();
  const prompt_ids = bits.column().map((code) => numbering.id(code));
  const found = [];
  for (const [, , , , untold] of lanes)
    found.push(
      unpackLane(
        found.map(({ rounds }) => rounds),
        bits,
        numbering,
        Boolean(untold),
      ),
    );
  let at = 0;
  const texts = bits.column().map((length) => joined.subarray(at, (at += length)));
  const tokens = Object.fromEntries(texts.map((text, id) => [id, String.fromCharCode(...text)]));
  begin.settings.prompt ??= textOf(prompt_ids.map((id) => texts[id]));
  return [
    { ...begin, version: VERSION, lanes: lanes.map(([key]) => key) },
    ...found.flatMap(({ rounds, finished }, place) => {
      const [key, facts, label, ways] = lanes[place];
      const started = { ...withNames(facts, STARTED), version: VERSION, lane: laneOf(key)?.name, prompt_ids };
      return [
        place ? started : { ...started, tokens },
        ...withWays(rounds, ways),
        ...(finished ? [finished] : []),
        ...(label ? [typeof label === "string" ? endOf(key, rounds, label) : label] : []),
      ];
    }),
    withNames(end, VERDICT),
  ];
}

// Everything with words: the race, its lanes, and its verdict.
function factsOf(race, lanes) {
  const { begin, verdict } = race;
  const prompt = textOf(lanes[0].started.prompt_ids.map((id) => race.bytes.get(id) ?? []));
  const settings = begin.settings.prompt === prompt ? { ...begin.settings, prompt: undefined } : begin.settings;
  const start = { at: Math.round(begin.at), pair: begin.pair, settings, runs: verdict.runs };
  const why = verdict.why && roundedWhy(verdict.why);
  const short = { ...verdict, ...LEFT_OUT, why, shown: 0 };
  return [VERSION, withoutNames(start, BEGIN), lanes.map(laneFacts), withoutNames(short, VERDICT)];
}

// What is not a round: the lane's key, its first line, and the label at the end of its line; of that only the time if
// the rest follows from the rounds. After them, where a pair drafts in more than one way, which of them guessed; and 1
// where a server did not tell some of its guesses.
function laneFacts(lane) {
  const { key, started, rounds, end } = lane;
  const short = { ...started, version: null, lane: null, prompt_ids: null, tokens: null };
  const follows = end && alike(end, endOf(key, rounds, end.duration));
  return [key, withoutNames(short, STARTED), follows ? end.duration : end, ...waysOf(lane)];
}

// The ways that guessed, and for each round the number of its way, 0 for none; nothing if no round names one. Then the
// mark of untold guesses.
function waysOf(lane) {
  const { rounds } = lane;
  const ways = [...new Set(rounds.flatMap(({ drafted_by: way }) => way ?? []))];
  const named = ways.length ? [ways, rounds.map(({ drafted_by: way }) => ways.indexOf(way) + 1)] : null;
  return hasUntold(lane) ? [named, 1] : named ? [named] : [];
}

function withWays(rounds, found) {
  const [ways, places] = found ?? [[], []];
  return rounds.map((round, at) => (places[at] ? { ...round, drafted_by: ways[places[at] - 1] } : round));
}

// The label at the end of a lane's line, in the server's words.
function endOf(key, rounds, duration) {
  const name = labelOf(key);
  const tokens = rounds.reduce((sum, round) => sum + round.committed_ids.length, 0);
  const spoken = `${name} lane ended: ${tokens} tokens, ${duration} from the first to the last.`;
  return { event: "lane_end", lane: key, name, duration, spoken };
}

// The steps of "Why" in hundredths of a millisecond, as the page shows them.
function roundedWhy(why) {
  return { ...why, steps: why.steps.map(([name, seconds]) => [name, Math.round(seconds * 1e5) / 1e5]) };
}

// Leaves out digits that the page does not show.
function rounded(_, value) {
  return Number.isFinite(value) && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
}

const alike = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const textOf = (texts) => new TextDecoder().decode(join(...texts));
