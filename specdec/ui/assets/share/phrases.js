// Phrases that most links contain, as one character each. JSON has no control characters, so these stand for phrases.
// If the server changes a phrase, links only become longer. The order of the phrases is part of the links' format.
const PHRASES = [
  '"runs":1},"lanes":[{"key":"generate","params":{"max_new_tokens":',
  ',"temperature":0,"top_k":0,"top_p":1,"min_p":0,"repetition_penalty":1,"seed":',
  ',"stop":[],"ignore_eos":false},"gamma":0,"acceptance":"lossless","accept_top_k":null,"pair":{"name":"',
  ',"compiled":false,"target":{"name":"',
  '","layers":',
  ',"parameters":',
  ',"dtype":"',
  ',"local":true,"revision":null,"bits":null,"own_',
  'forward":null}',
  ',"draft":{"kind":"model","text":"',
  ',"depends_on_start":false,"name":"',
  ',"engine":{"name":"eager","reason":null}},"machine":{"cpu":"',
  '"},"versions":{"python":"3.',
  '","transformers":"5.',
  '"},"neutralised":{},"end":"',
  '"},{"key":"speculative","gamma":',
  '"},{"key":"speculative:0","end":"',
  '"}],"verdict":{"event":"verdict","kind":"faster","reason":null,"doubts":[],"sentence":"Speculative decoding is ',
  " times as fast as plain generate (1 run).",
  "x comes from our loop, ",
  'x from speculation.","Identical text: ',
  ' tokens."],"stopped":false,"runs":1,"shown":0,"same":true,"figures":[{"value":"',
  '"}],"why":{"title":"Why: each round yields ',
  " times as long as a target pass over one token, and checking a round takes ",
  " of tested guesses are kept and ",
  "x the speed of our loop without a draft; theory predicts ",
  "x from these figures. Our loop alone runs at ",
  'x the speed of plain generate; this part does not come from speculation.","figures":[{"value":"',
  '","label":"',
  '","name":"',
  '"},{"value":"',
];
const signOf = (at) => String.fromCharCode(at + 1);

export const shorter = (json) => PHRASES.reduce((text, phrase, at) => text.replaceAll(phrase, signOf(at)), json);

// Throws a RangeError if the text would have more than `most` characters.
export function restored(text, most) {
  const length = (sum, sign) => sum + (PHRASES[sign.charCodeAt(0) - 1]?.length ?? 1);
  if (Array.prototype.reduce.call(text, length, 0) > most) throw new RangeError("too long");
  return PHRASES.reduce((json, phrase, at) => json.replaceAll(signOf(at), phrase), text);
}
