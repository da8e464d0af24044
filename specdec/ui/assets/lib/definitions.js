// The meanings of figures by short names, from the server. `mount` sets the table before anything is drawn.
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

// Replaces the definitions in figures by names, for a link, and back.
export const shortened = (figures) => replaced(figures, names);
export const defined = (figures) => replaced(figures, texts);

function replaced(figures, table) {
  return figures.map((figure) =>
    figure.definition ? { ...figure, definition: table.get(figure.definition) ?? figure.definition } : figure,
  );
}
