// Whole numbers in few bits. A column of them takes about as many bits as its values differ (Rice's code).
const MOST = 50_000; // values of all columns; a forged link of a few characters could hold any number of equal ones
const PLAIN = 16; // ones in a row; then the value is written plainly
const CODES = Array.from({ length: 20 }, (_, width) => width); // low bits of a value that are written plainly
const EQUAL = 31; // in place of a code: all values are equal to the smallest one

export class BitWriter {
  #bits = [];
  #values = 0;

  // Whether a reader takes what was written.
  get fits() {
    return this.#values <= MOST;
  }

  put(value, width) {
    for (let at = width - 1; at >= 0; at--) this.#bits.push(Math.floor(value / 2 ** at) % 2);
  }

  // Any number from 0 on; small ones take few bits (Elias' gamma code).
  number(value) {
    const width = (value + 1).toString(2).length;
    this.put(0, width - 1);
    this.put(value + 1, width);
  }

  column(values) {
    this.#values += values.length;
    this.number(values.length);
    if (!values.length) return;
    const least = values.reduce((one, other) => Math.min(one, other));
    const above = values.map((value) => value - least);
    this.number(least < 0 ? -2 * least - 1 : 2 * least);
    if (above.every((value) => value === 0)) return this.put(EQUAL, 5);
    const size = (width) => above.reduce((sum, value) => sum + Math.min(value / 2 ** width, 80) + width, 0);
    const code = CODES.reduce((best, width) => (size(width) < size(best) ? width : best));
    this.put(code, 5);
    for (const value of above) this.#rice(value, code);
  }

  #rice(value, code) {
    const high = Math.floor(value / 2 ** code);
    for (let one = 0; one < Math.min(high, PLAIN); one++) this.put(1, 1);
    if (high >= PLAIN) return this.number(value);
    this.put(0, 1);
    this.put(value, code);
  }

  get bytes() {
    const bytes = new Uint8Array(Math.ceil(this.#bits.length / 8));
    this.#bits.forEach((bit, at) => (bytes[at >> 3] |= bit << (7 - (at & 7))));
    return bytes;
  }
}

// Reads what a writer wrote. Throws a RangeError if it is incomplete.
export class BitReader {
  #bytes;
  #at = 0;
  #values = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  take(width) {
    let value = 0;
    for (let bit = 0; bit < width; bit++, this.#at++) {
      if (this.#at >= this.#bytes.length * 8) throw new RangeError("no more bits");
      value = value * 2 + ((this.#bytes[this.#at >> 3] >> (7 - (this.#at & 7))) & 1);
    }
    return value;
  }

  number() {
    let width = 1;
    while (!this.take(1)) if (++width > 53) throw new RangeError("too large");
    return 2 ** (width - 1) + this.take(width - 1) - 1;
  }

  column() {
    const length = this.number();
    if ((this.#values += length) > MOST) throw new RangeError("too long");
    if (!length) return [];
    const sign = this.number();
    const least = sign % 2 ? -(sign + 1) / 2 : sign / 2;
    const code = this.take(5);
    return Array.from({ length }, () => least + (code === EQUAL ? 0 : this.#rice(code)));
  }

  #rice(code) {
    let high = 0;
    while (high < PLAIN && this.take(1)) high++;
    return high === PLAIN ? this.number() : high * 2 ** code + this.take(code);
  }
}
