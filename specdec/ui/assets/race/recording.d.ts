// Made by python -m specdec.report.schema; a test keeps it as the code says.
export interface Begin {
  "event": "begin";
  "version": number;
  "at": number;
  "pair": string;
  "settings": Record<string, string | number | number | boolean | null>;
  "lanes": Array<string>;
  "runs": number;
}
export interface Choice {
  "name"?: string;
  "first"?: number | null;
  "chat"?: boolean;
}
export interface Decision {
  "p": Array<[number, number]>;
  "q": Array<[number, number]> | null;
  "residual": Array<[number, number]> | null;
}
export type Doubt = "busy" | "too_fast" | "luck" | "above_limit" | "stall" | "wide_spread" | "checking_shrinks" | "few_runs";
export interface DraftFacts {
  "kind": string;
  "text": string;
  "python"?: string;
  "depends_on_start"?: boolean;
  "name"?: string;
  "layers"?: number | null;
  "parameters"?: number;
  "dtype"?: string;
  "rows"?: number;
  "local"?: boolean;
  "revision"?: string | null;
  "bits"?: number | null;
  "own_tokenizer"?: boolean;
  "agreement"?: number;
  "max_ngram"?: number;
  "min_ngram"?: number;
  "layer_ids"?: Array<number>;
  "one_pass"?: boolean;
  "most_guesses"?: number;
  "more"?: Record<string, string | number | number | boolean | null>;
  "own_forward"?: string | null;
  "torch_passes"?: string | null;
  "in_16_bits"?: boolean;
}
export interface DraftToken {
  "token_id": number | null;
  "status": "accepted" | "rejected" | "discarded";
  "draft_prob": number | null;
  "target_prob": number | null;
  "accept_prob": number | null;
  "draw": number | null;
  "target_token_id": number | null;
  "draft_confidence": number | null;
  "overlap"?: number | null;
}
export interface EngineFacts {
  "name": "eager" | "graph";
  "reason": string | null;
}
export interface ErrorLine {
  "event": "error";
  "message": string;
}
export interface Figure {
  "value": string;
  "name"?: string;
  "label"?: string;
}
export interface FinishedLine {
  "finish_reason": "eos" | "length" | "stop" | "deadline";
  "prefill_seconds": number;
  "elapsed_seconds": number;
  "cpu_seconds"?: number | null;
  "event": "finished";
}
export interface GammaRecord {
  "tokens_per_pass": number | null;
  "passes": number;
  "ms_per_token": number;
  "gain": number;
  "share": number;
  "exact": boolean;
  "gamma": number;
  "sentence": string;
  "factor": string;
  "faster": boolean;
  "figures": Array<Figure>;
  "notes": Array<Note>;
}
export interface Grammar {
  "kind": "json-schema" | "regex" | "lark" | "function";
  "text": string;
}
export interface Head {
  "version": 4;
  "at": number;
  "pair": PairFacts;
  "machine": MachineFacts;
  "versions": Record<string, string>;
  "prompts": Array<PromptItem>;
  "configs": Array<[string, number | string | null]>;
  "runs": number;
  "params": SamplingParams;
  "chosen": Choice;
}
export type Kind = "faster" | "faster_unsplit" | "faster_perhaps" | "faster_by_engine" | "unclear" | "unclear_unsplit" | "unclear_gains" | "unclear_loses" | "slower" | "slower_unsplit" | "slower_perhaps" | "slower_by_engine" | "busy" | "noisy" | "no_guesses" | "nothing_guessed" | "too_few_tokens" | "no_token" | "incomplete" | "too_early" | "not_measured";
export interface LaneEnd {
  "event": "lane_end";
  "lane": string;
  "name": string;
  "duration": string;
  "spoken"?: string | null;
}
export interface MachineFacts {
  "cpu": string;
  "cores": number | null;
  "threads": number;
  "device": string;
  "gpu"?: string;
}
export interface Metrics {
  "new_tokens": number;
  "target_passes": number;
  "accepted": number | null;
  "rejected": number | null;
  "discarded": number | null;
  "alpha"?: number | null;
  "draft_acceptance_rate"?: number | null;
  "mean_acceptance_length": number | null;
  "whole_passes": number;
  "prefill_seconds": number;
  "decode_tokens": number;
  "decode_seconds": number;
  "tokens_per_second"?: number | null;
  "draft_seconds": number | null;
  "verify_seconds": number | null;
  "overhead_share"?: number | null;
  "stall_seconds": number;
  "state_seconds"?: number;
  "reread_seconds"?: number | null;
  "tested_at"?: Array<number>;
  "kept_at"?: Array<number>;
  "overlap_at"?: Array<number>;
  "passes_of"?: Array<number>;
  "cpu_seconds"?: number | null;
  "drafts"?: number | null;
}
export interface ModelFacts {
  "name": string;
  "layers": number | null;
  "parameters"?: number;
  "dtype": string;
  "rows"?: number;
  "local"?: boolean;
  "revision"?: string | null;
  "bits": number | null;
  "own_forward"?: string | null;
  "torch_passes"?: string | null;
  "in_16_bits"?: boolean;
}
export interface Note {
  "kind": string;
  "text": string;
}
export interface PairFacts {
  "name": string | null;
  "context"?: number | null;
  "device": string;
  "compiled": boolean;
  "target": ModelFacts;
  "draft": DraftFacts | null;
  "engine"?: EngineFacts;
  "server"?: ServerFacts;
}
export interface Part {
  "event": "part";
  "number": number;
  "from": number;
}
export interface PromptItem {
  "name": string;
  "category": string;
  "prompt": string;
  "chat"?: boolean;
}
export type Reason = "guesses_cost" | "few_kept" | "checking_grows" | "checking_or_loop" | "uneven" | "overhead" | "cut" | "unknown";
export interface RoundLine {
  "index": number;
  "token_id": number | null;
  "token_kind": "correction" | "bonus" | "target" | null;
  "committed_ids": Array<number>;
  "draft_seconds": number | null;
  "verify_seconds": number | null;
  "elapsed_seconds": number;
  "model_seconds"?: number | null;
  "target_margin"?: number | null;
  "decision"?: Decision | null;
  "missed"?: Array<[number, number]>;
  "reread"?: number;
  "state_seconds"?: number;
  "draft": Array<DraftToken> | null;
  "drafted_by"?: string | null;
  "event": "round";
  "tokens"?: Record<string, string>;
}
export interface SamplingParams {
  "max_new_tokens"?: number;
  "temperature"?: number;
  "top_k"?: number;
  "top_p"?: number;
  "min_p"?: number;
  "repetition_penalty"?: number;
  "seed"?: number | null;
  "stop"?: Array<string>;
  "ignore_eos"?: boolean;
  "grammar"?: Grammar | null;
  "draft_mask"?: boolean;
}
export interface ServerFacts {
  "engine": string;
  "version": string | null;
  "model": string;
  "speculation": boolean | null;
  "guesses": number | null;
  "exact": "rounds" | "counts" | "speed";
  "ids": boolean;
}
export interface StartedLine {
  "lane": string;
  "prompt_ids": Array<number>;
  "params": SamplingParams;
  "gamma": number | string;
  "acceptance": string;
  "accept_top_k": number | null;
  "pair": PairFacts;
  "machine": MachineFacts;
  "versions": Record<string, string>;
  "neutralised": Record<string, any>;
  "claims_lossless"?: boolean;
  "event": "started";
  "version"?: number;
  "tokens"?: Record<string, string>;
  "head"?: Array<string>;
}
export interface Table {
  "columns": Array<string>;
  "rows": Array<Array<string>>;
}
export interface Trial {
  "run": number;
  "prompt": string;
  "category": string;
  "lane": string;
  "gamma": number | string | null;
  "token_ids": Array<number>;
  "finish_reason": string | null;
  "greedy": boolean;
  "metrics": Metrics;
}
export interface VerdictLine {
  "kind": Kind;
  "sentence": string;
  "notes": Array<Note>;
  "stopped": boolean;
  "reason": Reason | null;
  "doubts": Array<Doubt>;
  "factor": string | null;
  "about": boolean;
  "faster": boolean;
  "gain": number | null;
  "engine": number | null;
  "speculation": number | null;
  "caption": string | null;
  "runs": number | null;
  "shown": number | null;
  "same": boolean | null;
  "figures": Array<Figure> | null;
  "rates": Record<string, string> | null;
  "lanes": Table | null;
  "places": Table | null;
  "passes": Table | null;
  "details": Array<Figure> | null;
  "time": string | null;
  "why": Why | null;
  "whatif": WhatIf | null;
  "whatif_refused": string | null;
  "warning": string | null;
  "end": LaneEnd | null;
  "saved": string | null;
  "chart": string | null;
  "checks"?: Table | null;
  "event": "verdict";
}
export interface WhatIf {
  "hits": Array<number>;
  "wrong": Array<number | null>;
  "lengths": Array<GammaRecord>;
  "costs": Array<[number, number, number]>;
  "best": number;
  "exact": boolean;
  "origin": string;
  "notes": Array<Note>;
}
export interface Why {
  "title": string;
  "text": string;
  "figures": Array<Figure>;
  "steps": Array<[string, number]>;
  "causes"?: Array<string>;
}
export type Line = StartedLine | RoundLine | FinishedLine | Begin | LaneEnd | VerdictLine | ErrorLine | Part;
