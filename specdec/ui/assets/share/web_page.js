// Makes a web page of the shown race that needs no server, from the empty one that the server has.
import { toBase64 } from "../lib/address.js";
import { deflate } from "../lib/inflate.js";

const NO_RACES = "0 recorded races of speculative decoding, round by round."; // in the head of the empty page
const EMPTY = "specdec-assets/static/page.html";

// The HTML of a race and its lines. Nothing of them leaves the browser. Throws an Error that says what is wrong.
export async function pageOf(race, text) {
  const answer = await fetch(new URL(EMPTY, document.baseURI));
  if (!answer.ok) throw new Error("The server does not answer. Try again.");
  const { verdict } = race;
  const card = { name: "race", packed: toBase64(await deflate(new TextEncoder().encode(text), "gzip")) };
  const data = JSON.stringify([card]).replaceAll("<", "\\u003c");
  const html = (await answer.text()).replace('id="sd-recordings">[]<', () => `id="sd-recordings">${data}<`);
  const style = html.indexOf("<style>"); // the script below has this sentence too, and must stay as it is
  return html.slice(0, style).replaceAll(NO_RACES, () => escaped(verdict.sentence)) + html.slice(style);
}

const escaped = (text) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
