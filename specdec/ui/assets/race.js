// A race as its lines tell it: runs of lanes, each with its rounds. The page draws from this and from nothing else.
import { bytesOf } from "./lines.js";

export const VERSION = 1;
const LARGEST = 20e6; // characters of a recording that a page takes

export class Lane {
  rounds = [];
  seconds = []; // after the lane's first token, a round each
  counts = []; // tokens written by then
  finished = null;
  end = null; // its label

  constructor(started) {
    this.name = started.lane;
    this.started = started;
  }

  add(round) {
    this.rounds.push(round);
    this.seconds.push(round.elapsed_seconds - this.rounds[0].elapsed_seconds);
    this.counts.push(this.tokens + round.committed_ids.length);
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
      this.lane = new Lane(record);
      this.runs.at(-1).set(record.lane, this.lane);
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
  const records = text.split("\n").filter(Boolean).map((line, at) => {
    try {
      const record = JSON.parse(line);
      check(record);
      return record;
    } catch (error) {
      throw new Error(`Line ${at + 1} is not a line of a recording (${error.message}).`);
    }
  });
  const [begin] = records;
  if (begin?.event !== "begin") throw new Error("It does not begin as a recording of a race does.");
  if (begin.version !== VERSION) throw new Error(`It is of version ${begin.version}; this page reads ${VERSION}.`);
  if (records.at(-1).event !== "verdict") throw new Error("It breaks off before the verdict.");
  const shown = records.at(-1).shown ?? 0;
  const started = records.filter((record) => record.event === "started");
  if (!(shown * begin.lanes.length < Math.max(1, started.length))) throw new Error("Its verdict names no run of it.");
  return records;
}

const number = (value) => Number.isFinite(value);
const text = (value) => typeof value === "string";
const whole = (value) => Number.isSafeInteger(value);
const object = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const maybe = (test) => (value) => value === null || value === undefined || test(value);
const listOf = (test) => (value) => Array.isArray(value) && value.every(test);
const chance = maybe((value) => number(value));
const weighed = maybe(listOf((row) => Array.isArray(row) && whole(row[0]) && number(row[1])));
const draftToken = (token) => object(token) && whole(token.token_id)
  && ["accepted", "rejected", "discarded"].includes(token.status) && maybe(whole)(token.target_token_id)
  && [token.draft_prob, token.target_prob, token.accept_prob, token.draw, token.draft_confidence].every(chance);

// What each kind of line must hold for the page to draw it.
const FIELDS = {
  begin: { lanes: listOf(text), settings: object, at: number, pair: text, runs: whole },
  started: { lane: text, prompt_ids: listOf(whole), params: (value) => object(value) && whole(value.max_new_tokens), pair: object },
  round: {
    index: whole, committed_ids: listOf(whole), elapsed_seconds: number, draft: maybe(listOf(draftToken)),
    token_id: maybe(whole), token_kind: maybe((value) => ["correction", "bonus", "target"].includes(value)),
    draft_seconds: maybe(number), verify_seconds: maybe(number), target_margin: maybe(number),
    decision: maybe((value) => object(value) && [value.p, value.q, value.residual].every(weighed)),
  },
  finished: { finish_reason: text },
  lane_end: { lane: text, name: text, duration: text },
  verdict: {
    sentence: text, notes: listOf(text), factor: maybe(text), shown: maybe((value) => whole(value) && value >= 0),
    figures: maybe(listOf((figure) => object(figure) && text(figure.value) && text(figure.label))),
    details: maybe(listOf((figure) => object(figure) && text(figure.value) && text(figure.label))),
    lanes: maybe((value) => object(value) && listOf(object)(value.columns) && listOf(listOf(text))(value.rows)),
    end: maybe(object), saved: maybe(text), chart: maybe(text), warning: maybe(text), time: maybe(text),
  },
};

function check(record) {
  const fields = object(record) && Object.hasOwn(FIELDS, record.event) ? FIELDS[record.event] : null;
  if (!fields) throw new Error("of no known kind");
  for (const [name, holds] of Object.entries(fields)) if (!holds(record[name])) throw new Error(`its ${name}`);
  if (!maybe((tokens) => object(tokens) && Object.values(tokens).every(text))(record.tokens)) throw new Error("its tokens");
}
