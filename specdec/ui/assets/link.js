// What rides in the address: settings as they are, or a whole run, packed. After "#", so that no server sees it.
import { defined, shortened } from "./definitions.js";
import { inflate } from "./inflate.js";
import { laneKeys, laneOf } from "./lanes.js";
import { VERSION, checked } from "./race.js";

const LONGEST = 4096; // bytes of a link; above it the file is offered
const INFLATED = 2e6; // bytes that a link may unpack to
const KINDS = ["target", "correction", "bonus"];
const TENTH = 1e4; // times are kept in tenths of a millisecond

const fragment = () => new URLSearchParams(location.hash.slice(1));

// The settings the address holds, as texts by name: its own, or those of the run in it.
export async function settingsInAddress() {
  if (!fragment().has("run")) return Object.fromEntries(fragment());
  try {
    return (await runInAddress())[0].settings;
  } catch {
    return {}; // the live view says what is wrong
  }
}

// The records of the run in the address, or null. Throws an Error that says what is wrong with it.
let unpacked = null; // it is asked for twice
export function runInAddress() {
  unpacked ??= readAddress();
  return unpacked;
}

async function readAddress() {
  const packed = fragment().get("run");
  if (!packed) return null;
  let records;
  try {
    const bytes = await inflate(fromBase64(packed), "deflate-raw", INFLATED);
    records = unpack(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    throw new Error("The link is damaged: a part of it may be missing.");
  }
  return checked(records);
}

// An address that is pasted over this one changes the part after "#" only, which loads nothing by itself.
window.addEventListener("hashchange", () => location.reload());

export function settingsLink(settings) {
  return `${page()}#${new URLSearchParams(settings)}`;
}

// The link to a run, or null where it would be too long.
export async function runLink(race) {
  const packed = toBase64(await deflate(JSON.stringify(pack(race), rounded)));
  const link = `${page()}#run=${packed}`;
  return link.length > LONGEST ? null : link;
}

// On a Space the page stands in a frame; the address that people see is the Space's.
const page = () => document.querySelector("#sd-share [data-page]")?.dataset.page || location.href.split(/[?#]/)[0];

// Token texts, statuses and times; no probabilities.
function pack(race) {
  const lanes = [...race.lanes.values()];
  const known = new Map();
  const short = (id) => {
    if (!known.has(id)) known.set(id, known.size);
    return known.get(id);
  };
  const packed = lanes.map((lane) => {
    const { event, tokens, lane: _, prompt_ids, version, ...started } = lane.started;
    let before = 0;
    const times = lane.rounds.map((round) => {
      const now = Math.round(round.elapsed_seconds * TENTH);
      const delta = now - before;
      before = now;
      return delta;
    });
    const plain = lane.rounds.every((round) => round.committed_ids.length === 1 && round.draft?.length === 0);
    const rounds = lane.rounds.map((round) =>
      plain
        ? short(round.committed_ids[0])
        : [
            KINDS.indexOf(round.token_kind),
            round.committed_ids.map(short),
            round.draft &&
              round.draft.filter((token) => token.status !== "accepted").map((token) => short(token.token_id)),
            round.draft && round.draft.filter((token) => token.status === "rejected").length,
            ...["draft_seconds", "verify_seconds"].map((part) => round[part] && Math.round(round[part] * TENTH)),
          ],
    );
    return { n: lane.name, p: prompt_ids.map(short), s: started, t: times, r: rounds, e: lane.end, f: lane.finished };
  });
  for (const lane of packed.slice(1)) {
    if (JSON.stringify(lane.p) === JSON.stringify(packed[0].p)) delete lane.p;
    for (const part of Object.keys(lane.s))
      if (JSON.stringify(lane.s[part]) === JSON.stringify(packed[0].s[part])) delete lane.s[part];
  }
  const { details, lanes: table, time, whatif, ...verdict } = race.verdict;
  const { at, pair, settings } = race.begin;
  const bytes = [...known.keys()].map((id) =>
    (race.bytes.get(id) ?? []).map((byte) => String.fromCharCode(byte)).join(""),
  );
  return {
    v: VERSION,
    b: { at: Math.round(at), pair, settings, runs: race.verdict.runs },
    k: bytes,
    l: packed,
    d: { ...withFigures(verdict, shortened), shown: 0 },
  };
}

// The lines again, with nothing where the link has nothing.
function unpack({ v, b, k, l, d }) {
  const tokens = Object.fromEntries(k.map((text, id) => [id, text]));
  const records = [{ event: "begin", version: v, ...b, lanes: l.map((lane) => lane.n) }];
  if (l.length > laneKeys().length) throw new Error("too many lanes");
  for (const lane of l) {
    const started = {
      event: "started",
      version: v,
      lane: laneOf(lane.n)?.name,
      prompt_ids: lane.p ?? l[0].p,
      ...l[0].s,
      ...lane.s,
    };
    records.push(records.length === 1 ? { ...started, tokens } : started);
    let elapsed = 0;
    lane.r.forEach((round, index) => {
      elapsed += lane.t[index] / TENTH;
      records.push({
        event: "round",
        index,
        elapsed_seconds: elapsed,
        model_seconds: null,
        target_margin: null,
        decision: null,
        missed: [],
        ...unpackRound(round),
      });
    });
    if (lane.f) records.push(lane.f);
    if (lane.e) records.push(lane.e);
  }
  return [...records, withFigures(d, defined)];
}

// Digits that nobody sees are left out.
function rounded(_, value) {
  return Number.isFinite(value) && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
}

// A verdict whose definitions are exchanged: they are the same in every run, and a third of a link.
function withFigures(verdict, exchange) {
  const exchanged = { ...verdict };
  if (verdict.figures) exchanged.figures = exchange(verdict.figures);
  if (verdict.why) exchanged.why = { ...verdict.why, figures: exchange(verdict.why.figures) };
  return exchanged;
}

function unpackRound(round) {
  if (typeof round === "number")
    return {
      draft: [],
      committed_ids: [round],
      token_id: round,
      token_kind: "target",
      draft_seconds: 0,
      verify_seconds: null,
    };
  const [kind, committed, missed, rejected, draft, verify] = round;
  const added = kind >= 0;
  const blank = {
    draft_prob: null,
    target_prob: null,
    accept_prob: null,
    draw: null,
    target_token_id: null,
    draft_confidence: null,
  };
  const kept = committed
    .slice(0, committed.length - (added ? 1 : 0))
    .map((id) => ({ token_id: id, status: "accepted", ...blank }));
  const rest = (missed ?? []).map((id, place) => ({
    token_id: id,
    status: place < rejected ? "rejected" : "discarded",
    ...blank,
  }));
  return {
    draft: missed && (kind === 0 ? [] : [...kept, ...rest]),
    committed_ids: committed,
    token_id: added ? committed.at(-1) : null,
    token_kind: added ? KINDS[kind] : null,
    draft_seconds: draft && draft / TENTH,
    verify_seconds: verify && verify / TENTH,
  };
}

async function deflate(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const toBase64 = (bytes) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
const fromBase64 = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
