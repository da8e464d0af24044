// The distributions that decided a sampled round.
import { el } from "../lib/dom.js";
import { visible } from "./lines.js";

// At the place where the target added its token: p, q and, after a rejection, the residual; null where they are not
// known. `text` is that of the lane before the round; `block`: whether the draft was verified as a block.
export function decisionOf(round, text, block) {
  const { p, q, residual } = round.decision ?? {};
  if (!p) return null;
  const kinds = [
    ["p", p, "target"],
    ["q", q, "draft"],
    ["residual", residual, block ? "norm(max(0, w p \u2212 q))" : "norm(max(0, p \u2212 q))"],
  ].filter(([, rows]) => rows);
  const tables = kinds.map(([name, rows]) => [name, new Map(rows)]);
  const largest = (id) => Math.max(...tables.map(([, rows]) => rows.get(id) ?? 0));
  const ids = [...new Set(kinds.flatMap(([, rows]) => rows.map(([id]) => id)))];
  ids.sort((one, other) => largest(other) - largest(one));
  const accepted = (round.draft ?? []).filter((token) => token.status === "accepted").map((token) => token.token_id);
  const rows = ids.slice(0, 10).map((id) => {
    const chosen = id === round.token_id;
    const name = el("span", "sd-barName sd-mono", visible(text.peek([...accepted, id]).at(-1)));
    const bars = tables.map(([kind, values]) => bar(kind, values.get(id)));
    return el("li", chosen ? "chosen" : "", "", [name, el("span", "sd-bars", "", bars)]);
  });
  if (round.token_id !== null && !ids.slice(0, 10).includes(round.token_id)) {
    const name = visible(text.peek([...accepted, round.token_id]).at(-1));
    rows.push(
      el("li", "chosen", "", [el("span", "sd-barName sd-mono", name), el("span", "", "not among the most likely")]),
    );
  }
  const words = residual ? "The correction was drawn from the residual." : "The token was drawn from p.";
  const key = kinds.map(([name, , of]) => el("span", `sd-barKey ${name}`, `${name}: ${of}`));
  return [el("p", "sd-barKeys", "", key), el("ul", "sd-decision", "", rows), el("p", "sd-stepWords", words)];
}

function bar(kind, value) {
  const fill = el("span", "sd-fill");
  fill.style.width = `${Math.max(0, Math.min(1, value ?? 0)) * 100}%`;
  const share = value === undefined ? "\u2013" : `${(value * 100).toFixed(1)}\u00a0%`;
  return el("span", `sd-bar ${kind}`, "", [el("span", "sd-track", "", [fill]), el("span", "sd-share-of", share)]);
}
