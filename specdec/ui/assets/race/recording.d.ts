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
export interface Decision {
  "p": Array<[number, number]>;
  "q": Array<[number, number]> | null;
  "residual": Array<[number, number]> | null;
}
export interface DraftToken {
  "token_id": number;
  "status": "accepted" | "rejected" | "discarded";
  "draft_prob": number | null;
  "target_prob": number | null;
  "accept_prob": number | null;
  "draw": number | null;
  "target_token_id": number | null;
  "draft_confidence": number | null;
  "overlap"?: number | null;
}
export interface ErrorLine {
  "event": "error";
  "message": string;
}
export interface Figure {
  "value": string;
  "label": string;
  "name"?: string;
}
export interface FinishedLine {
  "finish_reason": "eos" | "length" | "stop" | "deadline";
  "prefill_seconds": number;
  "elapsed_seconds": number;
  "cpu_seconds"?: number | null;
  "event": "finished";
}
export interface GammaRecord {
  "gamma": number;
  "tokens_per_pass": number | null;
  "passes": number;
  "ms_per_token": number;
  "gain": number;
  "share": number;
  "exact": boolean;
}
export interface LaneEnd {
  "event": "lane_end";
  "lane": string;
  "name": string;
  "duration": string;
  "spoken"?: string | null;
}
export interface Part {
  "event": "part";
  "number": number;
  "from": number;
}
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
}
export interface StartedLine {
  "lane": string;
  "prompt_ids": Array<number>;
  "params": SamplingParams;
  "gamma": number | string;
  "acceptance": string;
  "accept_top_k": number | null;
  "pair": Record<string, any>;
  "machine": Record<string, any>;
  "versions": Record<string, string>;
  "neutralised": Record<string, any>;
  "event": "started";
  "version"?: number;
  "tokens"?: Record<string, string>;
  "head"?: Array<string>;
}
export interface Table {
  "columns": Array<string>;
  "rows": Array<Array<string>>;
}
export interface Verdict {
  "event": "verdict";
  "sentence": string;
  "notes": Array<string>;
  "kind"?: string;
  "reason"?: string | null;
  "doubts"?: Array<string>;
  "engine"?: number | null;
  "speculation"?: number | null;
  "factor"?: string | null;
  "shown"?: number | null;
  "runs"?: number | null;
  "figures"?: Array<Figure> | null;
  "rates"?: Record<string, string> | null;
  "details"?: Array<Figure> | null;
  "lanes"?: Table | null;
  "places"?: Table | null;
  "passes"?: Table | null;
  "end"?: LaneEnd | null;
  "saved"?: string | null;
  "chart"?: string | null;
  "warning"?: string | null;
  "time"?: string | null;
  "why"?: Why | null;
  "whatif"?: WhatIf | null;
  "whatif_refused"?: string | null;
}
export interface WhatIf {
  "hits": Array<number>;
  "wrong": Array<number | null>;
  "lengths": Array<GammaRecord>;
  "costs": Array<[number, number, number]>;
  "assumed": string | null;
  "best": number;
  "exact": boolean;
}
export interface Why {
  "title": string;
  "text": string;
  "figures": Array<Figure>;
  "steps": Array<[string, number]>;
}
export type Line = Begin | ErrorLine | FinishedLine | LaneEnd | Part | RoundLine | StartedLine | Verdict;
