// What figures are called, what they and other words mean, and when two times are alike, from the server. `mount` sets
// all of it before anything is drawn.
let exactness = {}; // by "rounds", "counts" or "speed": what a server told of its rounds
let figures = {}; // by the keys of the figures
let words = {}; // by the keys of lanes, the kinds of tokens and others
let ends = []; // the ends of headlines that name both shares, with places for them in braces
let shrunk = 1; // below this, the ratio of two times that cannot shrink is noise

export function defineFigures(table) {
  ({ figures, words, ends, shrunk, exactness } = table);
}

const definitionOf = (key) => (Object.hasOwn(figures, key ?? "") ? figures[key] : null);

// Empty if the figure has none.
export const meaningOf = (key) => definitionOf(key)?.meaning ?? "";

export const wordMeaning = (key) => (Object.hasOwn(words, key) ? words[key] : "");

export const figureName = ({ label, name }) => label ?? definitionOf(name)?.name ?? "";

export const exactnessOf = (exact) => (Object.hasOwn(exactness ?? {}, exact) ? exactness[exact] : "");

export const isShrunk = (ratio) => ratio < shrunk;
export const isAlike = (ratio) => ratio > shrunk && ratio < 1 / shrunk;

// A headline without its end that names both shares, for a place where these figures stand beside it.
/** @param {string} headline @param {any[]} shares */
export function besideShares(headline, shares) {
  const [engine, speculation] = shares;
  if (!engine) return headline;
  const said = ends.map((end) => end.replace("{engine}x", engine.value).replace("{speculation}x", speculation.value));
  const end = said.find((words) => headline.endsWith(words));
  return end ? `${headline.slice(0, -end.length)}.` : headline;
}
