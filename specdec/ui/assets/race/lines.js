// Reads the growing string of JSON lines, and turns token bytes into text.

// Parses only new lines. The first line says which lines follow: "begin" all lines of a race, "part" those from a
// line on. Lines that were read before are skipped. If some are missing, the last value of the race has all of them.
export class LineReader {
  #head = null;
  #offset = 0;
  #race = null;
  #taken = 0; // lines of this race that were read
  #at = 0; // the line at the offset

  read(text) {
    const records = [];
    const head = text.slice(0, text.indexOf("\n") + 1);
    if (!head) return records; // an empty value between two others: the repeated lines are not new
    if (head !== this.#head) this.#start(head);
    for (let end; (end = text.indexOf("\n", this.#offset)) !== -1; this.#offset = end + 1) {
      if (this.#at === this.#taken) {
        records.push(JSON.parse(text.slice(this.#offset, end)));
        this.#taken += 1;
      }
      this.#at += 1;
    }
    return records;
  }

  #start(head) {
    this.#head = head;
    const first = head ? JSON.parse(head) : {};
    const part = first.event === "part";
    this.#offset = part ? head.length : 0;
    this.#at = part ? first.from : 0;
    if (first.number === this.#race) return;
    this.#race = first.number;
    this.#taken = 0;
  }
}

// Stands for a guess that a server did not tell, and what is said of it.
export const UNTOLD = "?";
export const UNTOLD_WORDS = "a guess that the server did not tell";

// A token may hold half a character, so text is made from bytes. Incomplete bytes wait for the next token.
export class TokenText {
  #bytes;
  #head;
  #pushed = 0;
  #decoder = new TextDecoder();
  #waiting = [];

  // `head`: the texts of a lane's first tokens, where they are not their bytes.
  constructor(bytes, head = []) {
    this.#bytes = bytes; // token id -> array of bytes, filled when lines arrive
    this.#head = head;
  }

  push(id) {
    if (this.#pushed < this.#head.length) return this.#head[this.#pushed++];
    const bytes = this.#bytes.get(id) ?? [];
    const piece = this.#decoder.decode(Uint8Array.from(bytes), { stream: true });
    this.#waiting = incompleteTail([...this.#waiting, ...bytes]);
    return piece;
  }

  // The pieces that these tokens would add, without adding them. A guess that a server did not tell has no id.
  peek(ids) {
    const decoder = new TextDecoder();
    decoder.decode(Uint8Array.from(this.#waiting), { stream: true });
    return ids.map((id) =>
      id === null ? UNTOLD : decoder.decode(Uint8Array.from(this.#bytes.get(id) ?? []), { stream: true }),
    );
  }
}

export function bytesOf(latin1) {
  return Array.from(latin1, (character) => character.charCodeAt(0));
}

// The bytes at the end that begin a character and do not complete it.
function incompleteTail(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back];
    if (byte >= 0xc0) {
      const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return back < needed ? bytes.slice(-back) : [];
    }
    if (byte < 0x80) return [];
  }
  return [];
}

// The end of a cut text, from the beginning of its first whole word on.
export const fromWord = (end) => end.slice(Math.max(0, end.search(/\s/)));

// A single token: its leading space and line ends are drawn, and half a character is named.
export function visible(piece) {
  if (piece === "") return "(part of a character)";
  return piece.replaceAll("\n", "\u21b5").replace(/^ /, "\u2423").replace(/ $/, "\u2423").replaceAll("\t", "\u21e5");
}
