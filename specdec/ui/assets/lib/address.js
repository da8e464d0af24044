// The part of the address after "#", which no server sees: settings, one packed result, and a tab.
export const LONGEST = 4096; // characters of a link to a result; longer results are offered as a file
// The tabs that open results of the address.
const TAB_OF = { sweep: "best-gamma", bench: "benchmark", lossless: "lossless" };
const NO_SETTINGS = ["run", "recording", "tab", ...Object.keys(TAB_OF)];

// A part of the address, or null: "run", "tab", or a name of results.
export const inAddress = (name) => fragment().get(name);

export function settingsInFragment() {
  return Object.fromEntries([...fragment()].filter(([name]) => !NO_SETTINGS.includes(name)));
}

export function withoutRun() {
  write((parts) => parts.delete("run"));
}

// Names a recording of the gallery in the address, with a new entry in the history.
export function addRecording(name) {
  write((parts) => {
    parts.delete("run");
    parts.set("recording", name);
  }, "pushState");
}

export function withoutRecording() {
  write((parts) => parts.delete("recording"));
}

// The name of the results in the address, and the packed results; null if there are none.
export function resultsInAddress() {
  const key = Object.keys(TAB_OF).find((name) => inAddress(name));
  return key ? { key, packed: inAddress(key) } : null;
}

// The name under which an address has the results of a tab; undefined for a tab without any.
export const resultsKey = (tab) => Object.keys(TAB_OF).find((key) => TAB_OF[key] === tab);

// An address without a tab means that of its results, or the first.
const impliedTab = () => TAB_OF[resultsInAddress()?.key] ?? "race";
export const tabInAddress = () => inAddress("tab") ?? impliedTab();

// Names another tab in the address, with a new entry in the history, so that Back returns to the present tab.
export function addTab(name) {
  write((parts) => (name === impliedTab() ? parts.delete("tab") : parts.set("tab", name)), "pushState");
}

// Whether this page has been at the present entry of the history: false for a pasted link. The mark stays with the entry.
export function visited() {
  const known = Boolean(history.state?.specdec);
  if (!known) history.replaceState({ ...history.state, specdec: true }, "");
  return known;
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

// Changes the address without loading anything, in the present entry of the history or in a new one.
function write(change, entry = "replaceState") {
  const parts = fragment();
  change(parts);
  if (String(parts) === String(fragment())) return;
  history[entry](history.state, "", String(parts) ? `#${parts}` : location.href.split("#")[0]);
}
