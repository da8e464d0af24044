// The first sentence of a text, and the rest. A text that quotes other texts stays whole, because they have full stops too.
export function firstSentence(text) {
  const first = /^[^\u201c]*?[.!?](?= [A-Z\u0391-\u03c9])/.exec(text)?.[0] ?? text;
  return [first, text.slice(first.length + 1)];
}

// A text of several lines in one. A sign stands where a line ends.
export const inOneLine = (text) =>
  text
    .trim()
    .replaceAll(/\s*\n\s*/g, "\u21b5 ")
    .replaceAll(/[^\S\n]+/g, " ");

// The beginning of a text of more than `most` characters, up to the end of a word.
export function beginningOf(text, most) {
  if (text.length <= most) return text;
  const word = text.slice(0, most + 1).lastIndexOf(" ");
  return `${text.slice(0, word > most / 2 ? word : most)} \u2026`;
}

// Whether a text is program code, whose columns matter: a line is indented, or a fence of Markdown begins.
export const isCode = (text) => /^(?: {2,}|\t)\S|^```/m.test(text);
