// A small recording of a race: plain generate, then our loop with one round that keeps a guess and misses the next.
import { SCHEMA } from "../../specdec/ui/assets/race/recording_schema.js";
import { VERSION } from "../../specdec/ui/assets/race/race.js";

export const ORIGINS = { run: "Measured here", link: "From a link", file: "From the file {name}" };

export const TABLE = [
  { key: "generate", name: "generate", gamma: null, label: "Plain" },
  { key: "speculative", name: "speculative", gamma: null, label: "Speculative" },
  { key: "speculative:0", name: "speculative", gamma: 0, label: "Our loop, no draft" },
];

const PARAMS = {
  max_new_tokens: 3,
  temperature: 0,
  top_k: 0,
  top_p: 1,
  min_p: 0,
  repetition_penalty: 1,
  seed: 1,
  ignore_eos: false,
};
const STARTED = {
  event: "started",
  version: VERSION,
  prompt_ids: [5],
  params: PARAMS,
  pair: {
    name: null,
    device: "cpu",
    compiled: false,
    target: { name: "big", layers: 2, dtype: "float32", revision: null, bits: null },
    draft: null,
  },
  machine: { cpu: "some", cores: 2, threads: 1, device: "cpu" },
  versions: { torch: "1" },
  neutralised: {},
  gamma: 2,
  acceptance: "lossless",
  accept_top_k: null,
};
const guess = (token_id, status) => ({
  token_id,
  status,
  draft_prob: null,
  target_prob: null,
  accept_prob: null,
  draw: null,
  target_token_id: null,
  draft_confidence: null,
});
const round = (index, committed_ids, elapsed_seconds, token_kind, draft = []) => ({
  event: "round",
  index,
  committed_ids,
  elapsed_seconds,
  draft,
  token_id: committed_ids.at(-1),
  token_kind,
  draft_seconds: 0,
  verify_seconds: 0.01,
  model_seconds: null,
  target_margin: null,
  decision: null,
  missed: [],
});
const finished = { event: "finished", finish_reason: "length", prefill_seconds: 0.1, elapsed_seconds: 0.4 };

// A verdict that says nothing.
const NO_VERDICT = {
  ...Object.fromEntries(Object.keys(SCHEMA.types.VerdictLine.properties).map((name) => [name, null])),
  event: "verdict",
  notes: [],
  doubts: [],
  stopped: false,
  about: false,
  faster: true,
};

const whatif = {
  hits: [0, 1, 0],
  wrong: [null, null, 5],
  lengths: Array.from({ length: 17 }, (_, gamma) => ({
    gamma,
    tokens_per_pass: 2,
    passes: 1,
    ms_per_token: 50,
    gain: 2,
    share: 2,
    exact: true,
    sentence: `\u03b3 ${gamma} would run at 2.0x the speed of plain generate.`,
    factor: "2.0x",
    faster: true,
    figures: [],
    notes: [],
  })),
  costs: Array.from({ length: 17 }, (_, gamma) => [gamma / 100, 0.02, 0]),
  best: 1,
  exact: true,
  origin: "Computed from this run, not measured.",
  notes: [],
};

export const records = () =>
  structuredClone([
    {
      event: "begin",
      version: VERSION,
      lanes: ["generate", "speculative"],
      settings: { prompt: "a" },
      at: 0,
      pair: "big, small",
      runs: 1,
    },
    { ...STARTED, lane: "generate", gamma: 0, tokens: { 5: "a", 6: "b", 7: "c", 8: "d" } },
    round(0, [6], 0.1, "target"),
    round(1, [7], 0.2, "target"),
    round(2, [8], 0.3, "target"),
    finished,
    { ...STARTED, lane: "speculative" },
    round(0, [6], 0.1, "target"),
    round(1, [7, 8], 0.2, "correction", [guess(7, "accepted"), guess(5, "rejected")]),
    finished,
    { ...NO_VERDICT, kind: "faster", sentence: "Faster.", shown: 0, runs: 1, whatif },
  ]);
