// What figures mean, and when two times are alike, from the server. `mount` sets both before anything is drawn.
let meanings = {}; // by the names of the figures
let shrunk = 1; // below this, the ratio of two times that cannot shrink is noise

export function defineFigures(table) {
  ({ meanings, shrunk } = table);
}

// Empty if the figure has none.
export const meaningOf = (name) => (Object.hasOwn(meanings, name ?? "") ? meanings[name] : "");

export const isShrunk = (ratio) => ratio < shrunk;
export const isAlike = (ratio) => ratio > shrunk && ratio < 1 / shrunk;
