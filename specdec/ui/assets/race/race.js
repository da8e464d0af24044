// A race from its lines: runs of lanes, each with its rounds. The page draws from this only.
import { keyOf, laneKeys, laneOf } from "../lib/lanes.js";
import { bytesOf } from "./lines.js";
import { SCHEMA } from "./recording_schema.js";
import { wrongField } from "./schema.js";

export const { version: VERSION } = SCHEMA; // of a recording
export const LARGEST = 64e6; // characters of a recording that a page accepts; its own are shorter
const MOST = { tokens: 10_000, prompt: 200_000 }; // of a lane: a browser takes long to draw more
const LINES = 100_000; // of a recording; a page draws fewer rounds
const LINE = 1_000_000; // characters of a line

export class Lane {
  rounds = [];
  seconds = []; // after the lane's first token, one for each round
  counts = []; // tokens written by then
  finished = null;
  end = null; // its label

  constructor(key, started) {
    this.key = key;
    this.started = started;
  }

  add(round) {
    this.rounds.push(round);
    this.seconds.push(round.elapsed_seconds - this.rounds[0].elapsed_seconds);
    this.counts.push(this.tokens + round.committed_ids.length);
  }

  // Whether its drafts were verified as blocks; in greedy decoding there is no difference.
  get block() {
    return this.started.acceptance === "block" && this.started.params.temperature > 0;
  }

  // What the server that ran it told of itself; null if no server did.
  get server() {
    return this.started.pair?.server ?? null;
  }

  // Whether its rounds are pieces of a server's answer, because the server did not tell its rounds.
  get pieces() {
    return this.server !== null && this.rounds.some((round) => round.draft === null);
  }

  // Whether more rounds may come.
  get open() {
    return this.finished === null;
  }

  get tokens() {
    return this.counts.at(-1) ?? 0;
  }

  get duration() {
    return this.seconds.at(-1) ?? 0;
  }

  // How many rounds had ended `seconds` after the first token.
  roundsAt(seconds) {
    let [low, high] = [0, this.rounds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.seconds[middle] <= seconds) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

// The kind of each committed token of a round, for everything that draws tokens. "unknown" if the lane does not
// report which of them were guesses.
export function kindsOf(round) {
  if (round.draft === null) return round.committed_ids.map(() => "unknown");
  const kept = round.draft.filter((token) => token.status === "accepted").length;
  const added = round.token_id === null ? -1 : round.committed_ids.length - 1;
  return round.committed_ids.map((_, place) => {
    if (place === added) return round.token_kind ?? "target";
    return place < kept ? "accepted" : "target";
  });
}

export class Race {
  bytes = new Map(); // token id -> its bytes
  runs = []; // of Maps, lane key -> Lane
  lane = null; // the running lane
  verdict = null;

  constructor(begin) {
    this.begin = begin;
  }

  // Whether servers ran it.
  get onServers() {
    return this.runs.some((run) => [...run.values()].some((lane) => lane.server));
  }

  take(record) {
    for (const [id, text] of Object.entries(record.tokens ?? {})) this.bytes.set(Number(id), bytesOf(text));
    if (record.event === "started") {
      if (!this.runs.length || this.runs.at(-1).size === this.begin.lanes.length) this.runs.push(new Map());
      this.lane = new Lane(keyOf(record, this.begin.lanes), record);
      this.runs.at(-1).set(this.lane.key, this.lane);
    } else if (record.event === "round") this.lane.add(record);
    else if (record.event === "finished") this.lane.finished = record;
    else if (record.event === "lane_end") this.lane.end = record;
    else if (record.event === "verdict") {
      this.verdict = record;
      if (record.end && this.lanes.get(record.end.lane)) this.lanes.get(record.end.lane).end = record.end;
    }
  }

  // The lanes to show: of the run that the verdict names, else of the running one.
  get lanes() {
    return this.runs[this.verdict?.shown ?? this.runs.length - 1] ?? new Map();
  }

  get asked() {
    return this.runs[0]?.values().next().value?.started.params.max_new_tokens ?? 1;
  }
}

// The records of a recording from elsewhere. Throws an Error whose message says what is wrong with it.
export function readRecording(text) {
  if (text.length > LARGEST) throw new Error(`It has ${text.length} characters; this page takes ${LARGEST}.`);
  if (!linesFit(text)) throw new Error(`It has more than ${LINES} lines.`);
  return check(linesOf(text));
}

// Counted before any line is read: to read very many lines takes a second.
function linesFit(text) {
  let count = 1;
  for (let at = text.indexOf("\n"); at >= 0 && count <= LINES; at = text.indexOf("\n", at + 1)) count += 1;
  return count <= LINES;
}

// The same records, if the page can draw all of them. Nothing is drawn before.
export const checked = (records) => check(records.map((record, at) => [record, at + 1]));

function* linesOf(text) {
  let number = 0;
  for (let start = 0, end; start < text.length; start = end + 1) {
    end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    number += 1;
    if (end - start > LINE) throw new Error(`Line ${number} has ${end - start} characters; this page takes ${LINE}.`);
    const line = text.slice(start, end).trim();
    if (line) yield [parsed(line, number), number];
  }
}

function parsed(line, number) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Error(`Line ${number} is not a line of a recording.`);
  }
}

// `numbered` yields each record with the number of its line. Nothing is read after the first one that is wrong.
function check(numbered) {
  const records = [];
  let race = null;
  for (const [record, number] of numbered) {
    if (!race && record?.event !== "begin") break;
    if (!race && record.version !== VERSION)
      throw new Error(`It has version ${record.version}; this page reads version ${VERSION}.`);
    const wrong = wrongField(record) ?? unknownLane(record);
    if (wrong) throw new Error(`Line ${number} is not a line of a recording: its ${wrong} is wrong.`);
    if (race && !follows(record, race)) throw new Error(`Line ${number} is in the wrong place (${record.event}).`);
    records.push(record);
    if (race) race.take(record);
    else race = new Race(record);
    if (race.lane && tooLong(race.lane))
      throw new Error(
        `One of its lanes is longer than this page draws (${MOST.tokens} tokens, ${MOST.prompt} of a prompt).`,
      );
  }
  if (!race) throw new Error("It is not a specdec recording.");
  if (!race.verdict) throw new Error("It ends before the verdict.");
  const { figures, whatif } = race.verdict;
  const compared = figures ? ["generate", "speculative"] : [];
  if (!race.lanes.size || !compared.every((lane) => race.lanes.get(lane)?.rounds.length)) {
    throw new Error("Its verdict compares lanes that are missing from it.");
  }
  if (whatif && !isOf(whatif, race.lanes.get("speculative")))
    throw new Error("Its data for other draft lengths belong to another lane.");
  return records;
}

const tooLong = ({ rounds, tokens, started }) =>
  Math.max(rounds.length, tokens) > MOST.tokens || started.prompt_ids.length > MOST.prompt;

// Whether a lane can be drawn at another draft length. Without a token, drawing it would not end.
const isOf = ({ hits, wrong, lengths, costs }, lane) =>
  [hits.length, wrong.length].every((count) => count === lane?.tokens) &&
  lengths.every(({ gamma }, at) => gamma === at) &&
  costs.every(([draft, verify, rest]) => draft + verify + rest >= 0);

// Checks that the schema cannot express: the lanes are those of this page, and table rows are as wide as their head.
function unknownLane(record) {
  const known = laneKeys();
  const holds = {
    begin: () =>
      typeof record.settings.prompt === "string" &&
      record.lanes.every((lane) => known.includes(lane)) &&
      new Set(record.lanes).size === record.lanes.length,
    started: () => known.some((key) => laneOf(key).name === record.lane),
    lane_end: () => known.includes(record.lane),
    verdict: () => (!record.end || record.end.lane === "speculative") && sameWidths(record),
  };
  return (holds[record.event] ?? (() => true))() ? null : "lanes";
}

const sameWidths = ({ lanes }) => !lanes || lanes.rows.every((row) => row.length === lanes.columns.length);

// Whether a record may follow the records that the race has.
function follows(record, { begin, lane, verdict }) {
  if (verdict) return false;
  if (record.event === "started") return begin.lanes.includes(keyOf(record, begin.lanes)) && !lane?.open;
  if (record.event === "verdict") return true;
  if (record.event === "round")
    return (
      lane?.open &&
      record.index === lane.rounds.length &&
      !(lane.rounds.at(-1)?.elapsed_seconds > record.elapsed_seconds)
    );
  return ["finished", "lane_end"].includes(record.event) && Boolean(lane);
}

// The state of a lane at a moment of a replay: the ended rounds, and the visible guesses of the next one. null is the
// end.
export function momentOf(lane, seconds) {
  if (!lane) return null;
  if (seconds === null) return { rounds: lane.rounds.length, guesses: null };
  const rounds = lane.roundsAt(seconds);
  const next = lane.rounds[rounds];
  if (!next?.draft?.length) return { rounds, guesses: null };
  const since = seconds - (lane.seconds[rounds - 1] ?? 0);
  const share = next.draft_seconds > 0 ? since / next.draft_seconds : 1;
  return { rounds, guesses: Math.min(next.draft.length, Math.floor(next.draft.length * share)) };
}

// Seconds for a person to read, as the verdict's sentences have them. A reader who divides two of them finds the speed-up
// beside them.
export const secondsOf = (value) => `${value.toFixed(value < 0.9995 ? 3 : value < 9.995 ? 2 : 1)}\u00a0s`;

// What a lane is called where it is drawn again on a scale of its own, so many times as wide.
export const nameOfWider = (times) => (times > 1.05 ? "enlarged" : "its rounds");
