// What a reload of this tab keeps: the fields of the form, and the last race that this visitor ran or opened. The
// address has priority, unless it was the same when this was kept.
import { inAddress, settingsInFragment } from "./address.js";
import { readRecording } from "./race.js";

const LARGEST = 2e6; // characters of a kept race
const [FIELDS, RACE] = ["specdec-fields", "specdec-race"];
const KEPT = ["run", "link", "file"]; // origins; the page's own first race is shown again by itself

// The values of the form to restore, or null.
let broughtBack = false;
export function keptFields() {
  return broughtBack ? null : read(FIELDS, settingsPart());
}

// The values that Gradio sets in the form's fields: those found by a reload, else none. From now on the values are
// kept.
export function fieldsAsKept(values) {
  const kept = keptFields()?.values;
  broughtBack = true;
  return kept?.length === values.length ? kept : values.map(() => ({ __type__: "update" }));
}

export function keepFields(values) {
  if (broughtBack) write(FIELDS, { address: settingsPart(), values });
}

export function keepRace({ origin, name }, text) {
  if (!KEPT.includes(origin)) return;
  write(RACE, text.length > LARGEST ? null : { address: inAddress("run") ?? "", origin, name, text });
}

// The race to restore, in the form that `open` takes, or null.
export function keptRace() {
  const kept = read(RACE, inAddress("run") ?? "");
  if (!kept) return null;
  try {
    const records = readRecording(kept.text);
    Object.assign(records[0], { name: kept.name, kept: true });
    return [records, kept.origin, () => kept.text];
  } catch {
    return null; // of another version of this page
  }
}

// The part of the address about the form, or "".
function settingsPart() {
  const run = inAddress("run");
  return String(new URLSearchParams({ ...settingsInFragment(), ...(run && { run }) }));
}

function read(key, address) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key));
    return !address || kept?.address === address ? kept : null;
  } catch {
    return null;
  }
}

function write(key, value) {
  try {
    sessionStorage.removeItem(key);
    if (value) sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // The storage is full or switched off, so a reload keeps nothing.
  }
}
