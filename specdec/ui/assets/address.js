// The part of the address after "#", which no server sees: settings, one packed result, and a tab.
export const LONGEST = 4096; // characters of a link to a result; longer results are offered as a file
const NO_SETTINGS = ["run", "sweep", "bench", "tab"];

// A part of the address, or null: "run", "tab", or "sweep" and "bench", which their tabs read.
export const inAddress = (name) => fragment().get(name);

export function settingsInFragment() {
  return Object.fromEntries([...fragment()].filter(([name]) => !NO_SETTINGS.includes(name)));
}

export function withoutRun() {
  write((parts) => parts.delete("run"));
}

// Tabs: an address without one means the first.
export const tabInAddress = () => inAddress("tab") ?? "race";

// Gradio also reports the first tab when the page loads, although nobody chose it.
let loaded = false;
export function tabChosen(name) {
  if (loaded) write((parts) => (name === "race" ? parts.delete("tab") : parts.set("tab", name)));
  loaded = true;
}

// A link to this page with these parts.
export const linkWith = (parts) => `${pageAddress()}#${new URLSearchParams(parts)}`;

// The same for a packed result; null if it would be too long.
export function resultLink(parts) {
  const link = linkWith(parts);
  return link.length > LONGEST ? null : link;
}

// On a Space the page is in a frame. People see the Space's address.
let around = "";
export function definePage(address) {
  around = address;
}
export const pageAddress = () => around || location.href.split(/[?#]/)[0];

export const toBase64 = (bytes) =>
  btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
export const fromBase64 = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

const fragment = () => new URLSearchParams(location.hash.slice(1));

// Changes the address without an entry in the history and without loading anything.
function write(change) {
  const parts = fragment();
  change(parts);
  if (String(parts) === String(fragment())) return;
  history.replaceState(history.state, "", String(parts) ? `#${parts}` : location.href.split("#")[0]);
}
