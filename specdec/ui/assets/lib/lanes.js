// The server's table of lanes. `mount` sets the rows before anything is drawn.
const rows = new Map(); // key -> { key, name, gamma, label, dash, sign }

export function defineLanes(table) {
  rows.clear();
  for (const row of table) rows.set(row.key, row);
}

export const laneKeys = () => [...rows.keys()];
export const laneOf = (key) => rows.get(key);
// The baseline comes first, and the speculative lane, whose strip is taller, last.
export const laneOrder = (key) => (key === "generate" ? 0 : key === "speculative" ? 2 : 1);
export const labelOf = (key) => rows.get(key)?.label ?? key;

// The key of the lane that a "started" record belongs to, among those of a race. A lane may have its own row for one
// draft length.
export function keyOf(started, keys) {
  const own = [...rows.values()].find((row) => row.name === started.lane && row.gamma === started.gamma);
  return own && keys.includes(own.key) ? own.key : started.lane;
}
