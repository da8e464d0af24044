// The text of a results file as few bytes for a link, and back: its first line as facts, its calls as columns of small
// numbers.
import { BitWriter } from "./bit_coding.js";
import { OtherVersion, seal, unseal } from "./envelope.js";
import { typeOf, withNames, withoutNames } from "./nameless.js";
import { SCHEMA } from "../race/recording_schema.js";

const MOST_DIGITS = 6; // after the point of a number; seconds are rounded to microseconds
// Of a link. A listed value may be long and stand in every row, so rows and their text have bounds of their own.
const MOST_CALLS = 500;
const MOST_TEXT = 150_000; // characters; the server takes no more
const FEW = 0.25; // of the values of a column; so few different ones are listed
const { metrics: _, ...OF_CALL } = typeOf("Trial").properties;
const TABLES = [OF_CALL, typeOf("Metrics").properties].map(Object.keys); // the columns of both tables

// null if the results are too long for a link.
export async function packResults(text) {
  if (text.length > MOST_TEXT) return null;
  const [{ results }, ...calls] = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  const bits = new BitWriter();
  const tables = [calls, calls.map(({ metrics }) => metrics)];
  const columns = tables.map((rows, at) => packRows(rows, TABLES[at], bits));
  return seal(JSON.stringify([SCHEMA.results, withoutNames(results, typeOf("Head")), ...columns]), bits);
}

// Throws an Error if the bytes are damaged.
export async function unpackResults(bytes) {
  const { facts, bits } = await unseal(bytes);
  const [version, head, ...columns] = facts;
  if (version !== SCHEMA.results) throw new OtherVersion("It was made by another version of this page.");
  const [calls, metrics] = TABLES.map((names, at) => unpackRows(columns[at], names, bits));
  let text = `${JSON.stringify({ results: withNames(head, typeOf("Head")) })}\n`;
  for (const [at, call] of calls.entries()) {
    text += `${JSON.stringify({ ...call, metrics: metrics[at] })}\n`;
    if (text.length > MOST_TEXT) throw new RangeError("too long");
  }
  return text;
}

// The result of a test of losslessness, which is short, as it is.
export async function packTest(text) {
  return text.length > MOST_TEXT ? null : seal(JSON.stringify([SCHEMA.results, JSON.parse(text)]), new BitWriter());
}

// Throws an Error if the bytes are damaged.
export async function unpackTest(bytes) {
  const [version, record] = (await unseal(bytes)).facts;
  if (version !== SCHEMA.results) throw new OtherVersion("It was made by another version of this page.");
  return JSON.stringify(record);
}

// Writes the values of rows. Returns how each column is written; null for one that the rows do not have.
function packRows(rows, names, bits) {
  const valuesOf = (name) => rows.map((row) => row[name]);
  return names.map((name) => (name in (rows[0] ?? {}) ? packColumn(valuesOf(name), bits) : null));
}

function unpackRows(columns, names, bits) {
  const found = columns.flatMap((how, at) => (how === null ? [] : [[names[at], unpackColumn(how, bits)]]));
  const { length } = found[0][1];
  if (length > MOST_CALLS || found.some(([, values]) => values.length !== length))
    throw new RangeError("too many calls, or columns of different lengths");
  return Array.from({ length }, (_, at) => Object.fromEntries(found.map(([name, values]) => [name, values[at]])));
}

// A column as places in a list of its different values, where they are few or no numbers; returns the list. Else as
// whole numbers, after a column that says which are missing, if some are; returns the digits after the point.
function packColumn(values, bits) {
  const texts = values.map((value) => JSON.stringify(value));
  const different = [...new Set(texts)];
  const known = values.filter((value) => value !== null);
  const digits = different.length > FEW * values.length ? digitsOf(known) : null;
  if (digits === null) {
    bits.column(texts.map((text) => different.indexOf(text)));
    return different.map((text) => JSON.parse(text));
  }
  const gaps = known.length < values.length;
  if (gaps) bits.column(values.map((value) => Number(value === null)));
  bits.column(known.map((value) => Math.round(value * 10 ** digits)));
  return { digits, gaps };
}

function unpackColumn(how, bits) {
  if (Array.isArray(how)) {
    const places = bits.column();
    if (places.some((place) => !(place in how))) throw new RangeError("no such value");
    return places.map((place) => how[place]);
  }
  const gaps = how.gaps ? bits.column() : null;
  const known = bits.column().map((value) => value / 10 ** how.digits);
  if (!gaps) return known;
  if (gaps.filter((gap) => !gap).length !== known.length) throw new RangeError("columns of different lengths");
  return gaps.map((gap) => (gap ? null : known.shift()));
}

// The digits after the point that all values need; null if some are no numbers, or need more than are written.
function digitsOf(values) {
  const fit = (digits) =>
    values.every((value) => {
      const whole = Math.round(value * 10 ** digits);
      return typeof value === "number" && Number.isSafeInteger(whole) && whole / 10 ** digits === value;
    });
  for (let digits = 0; digits <= MOST_DIGITS; digits++) if (fit(digits)) return digits;
  return null;
}
