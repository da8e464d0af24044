// Where a shown race comes from, in the server's words. `mount` sets the sentences before anything is drawn.
import { dayOf } from "./dom.js";

export const NO_MACHINE = "machine not recorded";

let sentences = {};
export function defineOrigins(table) {
  sentences = table;
}

// Whether this page's server ran it.
export const measuredHere = ({ origin }) => ["run", "startup", "servers"].includes(origin);

// With the file's name if there is one.
export function originOf({ origin, name }) {
  const sentence = sentences[origin === "file" && !name ? "unnamed file" : origin];
  return sentence.replace("{name}", () => name);
}

// The machine, the number of runs, and the day of a race.
export function sourceOf({ begin, verdict, lanes }) {
  const [{ started }] = lanes.values(); // of a stopped race perhaps the only one
  const { cpu, gpu } = started.machine;
  const machine = [gpu, cpu].find((name) => typeof name === "string") ?? NO_MACHINE;
  const count = verdict.runs > 1 ? `${verdict.runs} runs` : "1 run";
  const runs = verdict.runs > 2 ? `median of ${count}` : verdict.runs === 2 ? `the slower of ${count}` : count;
  return { machine, runs, day: dayOf(begin.at) };
}
