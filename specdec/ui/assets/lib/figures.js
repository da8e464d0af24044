// Figures with their names. A name shows its definition.
import { figureName, meaningOf } from "./definitions.js";
import { button, el } from "./dom.js";
import { firstSentence } from "./sentences.js";

export const SHARES = ["engine", "measured"]; // of a speed-up, by name; their product is the speed-up

// The figures of both shares; none if one is not known.
export function sharesOf(figures) {
  const found = SHARES.map((name) => figures.find((figure) => figure.name === name));
  return found.every(Boolean) ? found : [];
}

const capital = (words) => words.replace(/^[a-z]/, (letter) => letter.toUpperCase()); // a Greek letter stays

// A figure's label. If the figure has a definition, a tap, a click or a resting pointer shows it.
export function term(figure, label = figureName(figure)) {
  const definition = meaningOf(figure.name);
  if (!definition) return el("dt", "", label);
  const words = el("span", "sd-definition", definition);
  words.hidden = true;
  const name = button("sd-term", label, () => {
    words.hidden = !words.hidden;
    name.setAttribute("aria-expanded", String(!words.hidden));
  });
  name.title = definition;
  name.setAttribute("aria-expanded", "false");
  return el("dt", "", "", [name, words]);
}

// A verdict's speed-up as one text.
export const factorOf = ({ factor, about }) => (about && factor ? `about ${factor}` : factor);

export const factList = (figures) =>
  el(
    "dl",
    "sd-facts",
    "",
    figures.map((figure) => el("div", "", "", [term(figure, capital(figureName(figure))), el("dd", "", figure.value)])),
  );

// The table of all lanes, with notes below it.
export function laneTable({ columns, rows }) {
  const head = columns.map((name) => {
    const cell = el("th", "", name);
    cell.scope = "col";
    if (meaningOf(name)) cell.title = meaningOf(name);
    return cell;
  });
  const body = rows.map((row) => {
    const cells = row.map((value, at) => {
      const cell = el(at ? "td" : "th", "", value);
      if (!at) cell.scope = "row";
      cell.dataset.label = columns[at];
      return cell;
    });
    return el("tr", "", "", cells);
  });
  return el("table", "sd-table", "", [el("thead", "", "", [el("tr", "", "", head)]), el("tbody", "", "", body)]);
}

// Why a figure that is "about" is uncertain, in a sentence; "" for another one.
export function doubtOf({ about, doubts, notes }) {
  const why = about && notes.find(({ kind }) => doubts.includes(kind));
  return why ? firstSentence(why.text)[0] : "";
}
