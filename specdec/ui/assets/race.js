// A race as its lines tell it: runs of lanes, each with its rounds. The page draws from this and from nothing else.
import { keyOf, laneKeys, laneOf } from "./lanes.js";
import { bytesOf } from "./lines.js";

export const VERSION = 1;
export const LARGEST = 64e6; // characters of a recording that a page takes; its own stay below

export class Lane {
  rounds = [];
  seconds = []; // after the lane's first token, a round each
  counts = []; // tokens written by then
  finished = null;
  end = null; // its label

  constructor(key, started) {
    this.name = key;
    this.started = started;
  }

  add(round) {
    this.rounds.push(round);
    this.seconds.push(round.elapsed_seconds - this.rounds[0].elapsed_seconds);
    this.counts.push(this.tokens + round.committed_ids.length);
  }

  // Whether rounds may still come.
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

// How each committed token of a round came about; the one answer for all that draws tokens. "unknown" where the lane
// does not say which of them were guesses.
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
  runs = []; // of Maps, lane name -> Lane
  lane = null; // the one that runs
  verdict = null;

  constructor(begin) {
    this.begin = begin;
  }

  take(record) {
    for (const [id, text] of Object.entries(record.tokens ?? {})) this.bytes.set(Number(id), bytesOf(text));
    if (record.event === "started") {
      if (!this.runs.length || this.runs.at(-1).size === this.begin.lanes.length) this.runs.push(new Map());
      this.lane = new Lane(keyOf(record, this.begin.lanes), record);
      this.runs.at(-1).set(this.lane.name, this.lane);
    } else if (record.event === "round") this.lane.add(record);
    else if (record.event === "finished") this.lane.finished = record;
    else if (record.event === "lane_end") this.lane.end = record;
    else if (record.event === "verdict") {
      this.verdict = record;
      if (record.end && this.lanes.get(record.end.lane)) this.lanes.get(record.end.lane).end = record.end;
    }
  }

  // The lanes to show: of the run the verdict names, else of the one that goes on.
  get lanes() {
    return this.runs[this.verdict?.shown ?? this.runs.length - 1] ?? new Map();
  }

  get asked() {
    return this.runs[0]?.values().next().value?.started.params.max_new_tokens ?? 1;
  }
}

// The records of a recording from somewhere else. Throws an Error whose message says what is wrong with it.
export function readRecording(text) {
  if (text.length > LARGEST) throw new Error(`It has ${text.length} characters; this page takes ${LARGEST}.`);
  return checked(
    text
      .split("\n")
      .filter(Boolean)
      .map((line, at) => {
        try {
          return JSON.parse(line);
        } catch {
          throw new Error(`Line ${at + 1} is not a line of a recording.`);
        }
      }),
  );
}

// The same records, if all of them are what the page can draw; nothing is drawn before that is known.
export function checked(records) {
  const [begin] = records;
  if (begin?.event !== "begin") throw new Error("It does not begin as a recording of a race does.");
  if (begin.version !== VERSION) throw new Error(`It is of version ${begin.version}; this page reads ${VERSION}.`);
  records.forEach((record, at) => {
    const fields = object(record) && Object.hasOwn(FIELDS, record.event) ? FIELDS[record.event] : null;
    const wrong = fields ? Object.keys(fields).find((name) => !fields[name](record[name])) : "kind";
    const found = wrong ?? (tokenTable(record.tokens) ? null : "tokens");
    if (found) throw new Error(`Line ${at + 1} is not a line of a recording (its ${found}).`);
  });
  if (records.at(-1).event !== "verdict") throw new Error("It breaks off before the verdict.");
  const race = new Race(begin);
  records.slice(1).forEach((record, at) => {
    const { lane } = race;
    const fits =
      record.event === "started"
        ? begin.lanes.includes(keyOf(record, begin.lanes)) && !lane?.open
        : record.event === "verdict"
          ? at === records.length - 2
          : record.event === "round"
            ? lane?.open && record.index === lane.rounds.length
            : record.event === "begin"
              ? false
              : Boolean(lane);
    if (!fits) throw new Error(`Line ${at + 2} stands where it cannot (${record.event}).`);
    race.take(record);
  });
  const { figures } = race.verdict;
  if (figures && !["generate", "speculative"].every((lane) => race.lanes.get(lane)?.rounds.length)) {
    throw new Error("Its verdict compares lanes that it does not hold.");
  }
  return records;
}

const number = (value) => Number.isFinite(value) && Math.abs(value) < 1e15;
const text = (value) => typeof value === "string" && value.length < 1e5;
const whole = (value) => Number.isSafeInteger(value);
const object = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const none = (test) => (value) => value === null || test(value); // there, and perhaps null
const maybe = (test) => (value) => value === undefined || none(test)(value);
const listOf =
  (test, most = 1e6) =>
  (value) =>
    Array.isArray(value) && value.length <= most && value.every(test);
const oneOf =
  (...choices) =>
  (value) =>
    choices.includes(value);
const seconds = (value) => number(value) && value >= 0;
const laneKey = (value) => laneKeys().includes(value);
const weighed = none(listOf((row) => Array.isArray(row) && row.length === 2 && whole(row[0]) && number(row[1]), 20));
const draftToken = (token) =>
  object(token) &&
  whole(token.token_id) &&
  oneOf("accepted", "rejected", "discarded")(token.status) &&
  none(whole)(token.target_token_id) &&
  [token.draft_prob, token.target_prob, token.accept_prob, token.draw, token.draft_confidence].every(none(number));
const figure = (value) => object(value) && text(value.value) && text(value.label) && maybe(text)(value.definition);
const tokenTable = maybe((tokens) => object(tokens) && Object.values(tokens).every(text));
const table = (value) =>
  object(value) &&
  listOf((column) => object(column) && text(column.name) && maybe(text)(column.definition), 20)(value.columns) &&
  listOf((row) => listOf(text)(row) && row.length === value.columns.length, 20)(value.rows);
const SETTINGS = {
  max_new_tokens: whole,
  temperature: number,
  top_k: whole,
  top_p: number,
  min_p: number,
  repetition_penalty: number,
  seed: none(whole),
  ignore_eos: (value) => typeof value === "boolean",
};
const params = (value) => object(value) && Object.entries(SETTINGS).every(([name, holds]) => holds(value[name]));
const single = (value) => ["string", "number", "boolean"].includes(typeof value) || value === null;
const plain = (value) => object(value) && Object.values(value).every(single);
const pair = (value) => object(value) && Object.values(value).every((part) => single(part) || plain(part));
const settings = (value) => plain(value) && text(value.prompt);

// What each kind of line must hold for the page to draw it.
const FIELDS = {
  begin: {
    lanes: (value) =>
      listOf(laneKey, laneKeys().length)(value) && value.length > 0 && new Set(value).size === value.length,
    settings,
    at: (value) => seconds(value) && value < 1e11,
    pair: text,
    runs: (value) => whole(value) && value >= 1,
  },
  started: {
    lane: (value) => laneKeys().some((key) => laneOf(key).name === value),
    prompt_ids: listOf(whole),
    params,
    pair,
    machine: plain,
    gamma: (value) => whole(value) || text(value),
    acceptance: oneOf("lossless", "top-k"),
    accept_top_k: none(whole),
  },
  round: {
    index: whole,
    committed_ids: listOf(whole),
    elapsed_seconds: seconds,
    draft: none(listOf(draftToken, 64)),
    token_id: none(whole),
    token_kind: none(oneOf("correction", "bonus", "target")),
    draft_seconds: none(number),
    verify_seconds: none(number),
    target_margin: none(number),
    decision: none((value) => object(value) && [value.p, value.q, value.residual].every(weighed)),
  },
  finished: { finish_reason: text },
  lane_end: { lane: laneKey, name: text, duration: text, spoken: maybe(text) },
  verdict: {
    sentence: text,
    notes: listOf(text, 100),
    factor: maybe(text),
    shown: maybe((value) => whole(value) && value >= 0),
    runs: maybe(whole),
    figures: maybe(listOf(figure, 8)),
    details: maybe(listOf(figure, 100)),
    lanes: maybe(table),
    end: maybe((value) => object(value) && value.lane === "speculative" && text(value.name) && text(value.duration)),
    saved: maybe(text),
    chart: maybe(text),
    warning: maybe(text),
    time: maybe(text),
    why: maybe(
      (value) =>
        object(value) &&
        text(value.title) &&
        text(value.text) &&
        listOf(figure, 20)(value.figures) &&
        listOf((step) => Array.isArray(step) && step.length === 2 && text(step[0]) && number(step[1]), 20)(value.steps),
    ),
  },
};
