// The first sentence of a text, and the rest. A text that quotes other texts stays whole, because they have full stops too.
export function firstSentence(text) {
  const first = /^[^\u201c]*?[.!?](?= [A-Z\u0391-\u03c9])/.exec(text)?.[0] ?? text;
  return [first, text.slice(first.length + 1)];
}
