// Packs and unpacks bytes with the browser's own deflate.

/** @param {CompressionFormat} [format] */
export async function deflate(bytes, format = "deflate-raw") {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The bytes that packed ones hold, up to `most`: a small packed file can hold more than the memory does. Throws a
// RangeError where they hold more, and a TypeError where they are damaged.
export async function inflate(bytes, format, most) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format)).getReader();
  const parts = [];
  let size = 0;
  for (let part; !(part = await reader.read()).done;) {
    if ((size += part.value.length) > most) throw new RangeError("too large");
    parts.push(part.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
