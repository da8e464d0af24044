// Facts and columns of numbers as the bytes of a link, and back. Every link to a result is made here.
import { BitReader } from "./bit_coding.js";
import { LONGEST, fromBase64 } from "../lib/address.js";
import { deflate, inflate } from "../lib/inflate.js";

const INFLATED = 100_000; // bytes that facts and texts may unpack to
const HEAD = 6; // bytes: a checksum, then the length of the facts

export class OtherVersion extends Error {}

// `facts` are JSON, and `texts` are lists of bytes. null if they are too long for a link.
export async function seal(facts, bits, texts = []) {
  const plain = join(new TextEncoder().encode(`${facts}\0`), ...texts);
  if (plain.length > INFLATED || !bits.fits) return null;
  const packed = await deflate(plain);
  const all = join([packed.length >> 8, packed.length & 255], packed, bits.bytes);
  return join(checksum(all), all);
}

// The facts as a value, the bytes of all texts, and the columns. Throws an Error if the bytes are damaged.
export async function unseal(bytes) {
  if (checksum(bytes.subarray(4)).some((byte, at) => byte !== bytes[at])) throw new RangeError("damaged");
  const size = bytes[4] * 256 + bytes[5];
  const plain = await inflate(bytes.subarray(HEAD, HEAD + size), "deflate-raw", INFLATED);
  const end = plain.indexOf(0);
  const facts = new TextDecoder().decode(plain.subarray(0, end));
  return {
    facts: facts.startsWith("[") ? JSON.parse(facts) : [],
    texts: plain.subarray(end + 1),
    bits: new BitReader(bytes.subarray(HEAD + size)),
  };
}

// What `unpack` reads from the packed part of an address. Throws an Error that says what is wrong with it.
export async function opened(packed, unpack) {
  if (packed.length > LONGEST)
    throw new Error(`It has ${packed.length} characters, more than the ${LONGEST} of a link.`);
  try {
    return await unpack(fromBase64(packed));
  } catch (error) {
    throw error instanceof OtherVersion ? error : new Error("The link is damaged: a part of it may be missing.");
  }
}

export const join = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));

// A checksum that detects a damaged link (FNV-1a).
export function checksum(bytes) {
  let sum = 0x811c9dc5;
  for (const byte of bytes) sum = Math.imul(sum ^ byte, 0x01000193);
  return [24, 16, 8, 0].map((shift) => (sum >>> shift) & 255);
}
