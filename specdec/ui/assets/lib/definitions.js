// What figures are called, what they and other words mean, and when two times are alike, from the server. `mount` sets
// all of it before anything is drawn.
let exactness = {}; // by "rounds", "counts" or "speed": what a server told of its rounds
let figures = {}; // by the keys of the figures
let words = {}; // by the keys of lanes, the kinds of tokens and others
let shrunk = 1; // below this, the ratio of two times that cannot shrink is noise

export function defineFigures(table) {
  ({ figures, words, shrunk, exactness } = table);
}

const definitionOf = (key) => (Object.hasOwn(figures, key ?? "") ? figures[key] : null);

// Empty if the figure has none.
export const meaningOf = (key) => definitionOf(key)?.meaning ?? "";

export const wordMeaning = (key) => (Object.hasOwn(words, key) ? words[key] : "");

export const figureName = ({ label, name }) => label ?? definitionOf(name)?.name ?? "";

export const exactnessOf = (exact) => (Object.hasOwn(exactness ?? {}, exact) ? exactness[exact] : "");

export const isShrunk = (ratio) => ratio < shrunk;
export const isAlike = (ratio) => ratio > shrunk && ratio < 1 / shrunk;
