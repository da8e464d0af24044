// Where a shown race comes from, in the server's words. `mount` sets the sentences before anything is drawn.
import { dayOf } from "./dom.js";

let sentences = {};
export function defineOrigins(table) {
  sentences = table;
}

// Whether this page's server ran it.
export const measuredHere = ({ origin }) => ["run", "startup"].includes(origin);

export const originOf = ({ origin, name = "" }) => sentences[origin].replace("{name}", () => name);

// The machine, the number of runs, and the day of a race.
export function sourceOf({ begin, verdict, lanes }) {
  const { cpu, gpu } = lanes.get("speculative").started.machine;
  const runs = verdict.runs > 1 ? `median of ${verdict.runs} runs` : "1 run";
  return { machine: gpu ?? cpu, runs, day: dayOf(begin.at) };
}
