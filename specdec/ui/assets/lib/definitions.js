// The meanings of figures by their names, from the server. `mount` sets the table before anything is drawn.
const texts = new Map();

export function defineFigures(table) {
  texts.clear();
  for (const [name, text] of Object.entries(table)) texts.set(name, text);
}

// Empty if the figure has none.
export const meaningOf = (name) => texts.get(name) ?? "";
