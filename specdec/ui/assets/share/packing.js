// A race as few bytes for a link: facts and token texts as packed text, rounds as columns of small numbers. It has
// token texts, statuses and times, but no probabilities.
import { BitReader, BitWriter } from "./bit_coding.js";
import { Numbering, packLane, unpackLane } from "./columns.js";
import { deflate, inflate } from "../lib/inflate.js";
import { labelOf, laneKeys, laneOf } from "../lib/lanes.js";
import { restored, shorter } from "./phrases.js";
import { VERSION } from "../race/race.js";

const INFLATED = 100_000; // bytes that facts and texts may unpack to
const RESTORED = 1e6; // characters of the facts with their phrases
const HEAD = 6; // bytes: a checksum, then the length of the facts

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
  const facts = shorter(JSON.stringify(factsOf(race, lanes), rounded));
  const plain = join(new TextEncoder().encode(`${facts}\0`), texts.flat());
  if (plain.length > INFLATED || !bits.fits) return null;
  const packed = await deflate(plain);
  const all = join([packed.length >> 8, packed.length & 255], packed, bits.bytes);
  return join(checksum(all), all);
}

// The lines again; a value is missing where the bytes have none. Throws an Error if the bytes are damaged.
export async function unpack(bytes) {
  if (checksum(bytes.subarray(4)).some((byte, at) => byte !== bytes[at])) throw new RangeError("damaged");
  const size = bytes[4] * 256 + bytes[5];
  const plain = await inflate(bytes.subarray(HEAD, HEAD + size), "deflate-raw", INFLATED);
  let at = plain.indexOf(0);
  const { begin, lanes, verdict } = JSON.parse(restored(new TextDecoder().decode(plain.subarray(0, at++)), RESTORED));
  if (lanes.length > laneKeys().length) throw new RangeError("too many lanes");
  const bits = new BitReader(bytes.subarray(HEAD + size));
  const numbering = new Numbering();
  const prompt_ids = bits.column().map((code) => numbering.id(code));
  const found = [];
  for (const _ of lanes)
    found.push(
      unpackLane(
        found.map(({ rounds }) => rounds),
        bits,
        numbering,
      ),
    );
  const texts = bits.column().map((length) => plain.subarray(at, (at += length)));
  const tokens = Object.fromEntries(texts.map((text, id) => [id, String.fromCharCode(...text)]));
  begin.settings.prompt ??= textOf(prompt_ids.map((id) => texts[id]));
  return [
    { event: "begin", version: VERSION, ...begin, lanes: lanes.map(({ key }) => key) },
    ...found.flatMap(({ rounds, finished }, place) => {
      const { key, end, ...started } = { ...lanes[0], ...lanes[place] };
      const lane = { event: "started", version: VERSION, lane: laneOf(key)?.name, prompt_ids, ...started };
      return [
        place ? lane : { ...lane, tokens },
        ...rounds,
        ...(finished ? [finished] : []),
        ...(end ? [typeof end === "string" ? endOf(key, rounds, end) : end] : []),
      ];
    }),
    verdict,
  ];
}

// Everything with names or words. A lane repeats nothing of the first one.
function factsOf(race, lanes) {
  const { at, pair, settings } = race.begin;
  const { details, lanes: table, places, passes, time, whatif, ...verdict } = race.verdict;
  const [first, ...others] = lanes.map((lane) => {
    const { event, tokens, lane: name, prompt_ids, version, ...started } = lane.started;
    const end = lane.end && endOf(lane.name, lane.rounds, lane.end.duration);
    return { key: lane.name, ...started, end: alike(end, lane.end) ? (end?.duration ?? null) : lane.end };
  });
  const unlike = (part) => Object.entries(part).filter(([name, value]) => !alike(value, first[name]));
  const prompt = textOf(lanes[0].started.prompt_ids.map((id) => race.bytes.get(id) ?? []));
  return {
    begin: {
      at: Math.round(at),
      pair,
      settings: settings.prompt === prompt ? { ...settings, prompt: undefined } : settings,
      runs: race.verdict.runs,
    },
    lanes: [first, ...others.map((part) => Object.fromEntries(unlike(part)))],
    verdict: { ...verdict, ...(verdict.why && { why: roundedWhy(verdict.why) }), shown: 0 },
  };
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
const join = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const textOf = (texts) => new TextDecoder().decode(join(...texts));

// A checksum that detects a damaged link (FNV-1a).
export function checksum(bytes) {
  let sum = 0x811c9dc5;
  for (const byte of bytes) sum = Math.imul(sum ^ byte, 0x01000193);
  return [24, 16, 8, 0].map((shift) => (sum >>> shift) & 255);
}
