// What most links say alike, as one character each. JSON writes no control characters, so these stand for phrases.
// A phrase that the server words anew only makes links longer. The order of the phrases is part of the links' format.
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
  " times as fast as plain generate here (1 run).",
  "x comes from our loop, ",
  'x from speculation.","Identical text: ',
  ' tokens."],"stopped":false,"runs":1,"shown":0,"same":true,"figures":[{"value":"',
  '"}],"why":{"title":"Why: each round yields ',
  " tokens. In target passes over one token, drafting a guess takes ",
  " of tested guesses are kept and ",
  "x our loop without a draft; theory predicts ",
  "x from these figures. The loop itself runs at ",
  'x plain generate: that part is the engine\'s.","figures":[{"value":"',
  '","label":"',
  '","definition":"',
  '"},{"value":"',
];
const signOf = (at) => String.fromCharCode(at + 1);

export const shorter = (json) => PHRASES.reduce((text, phrase, at) => text.replaceAll(phrase, signOf(at)), json);
export const restored = (text) => PHRASES.reduce((json, phrase, at) => json.replaceAll(signOf(at), phrase), text);
