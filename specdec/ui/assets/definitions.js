// What the figures mean, by short names, as the server has it. `mount` hands the table over before anything is drawn.
const texts = new Map(); // name -> text
const names = new Map(); // text -> name

export function defineFigures(table) {
  texts.clear();
  names.clear();
  for (const [name, text] of Object.entries(table)) {
    texts.set(name, text);
    names.set(text, name);
  }
}

// Figures with names in place of their definitions, for a link, and with the definitions again.
export const shortened = (figures) => replaced(figures, names);
export const defined = (figures) => replaced(figures, texts);

function replaced(figures, table) {
  return figures.map((figure) =>
    figure.definition ? { ...figure, definition: table.get(figure.definition) ?? figure.definition } : figure,
  );
}
