// What a reload of this tab keeps: the fields of the form and of the pair panel, and the last race that this visitor ran
// or opened. For form and race the address has priority, unless it was the same when this was kept.
import { inAddress, settingsInFragment } from "../lib/address.js";
import { readRecording } from "../race/race.js";

const LARGEST = 2e6; // characters of a kept race
const [FORM, RACE] = ["specdec-form", "specdec-race"];
const KEPT = ["run", "servers", "link", "file"]; // origins; the page's own first race is shown again by itself

// The values of the form to restore, or null.
const broughtBack = new Set(); // the groups of fields that were restored
export const keptFields = () => keptIn(FORM);

// The values that Gradio sets in a group of fields: those found by a reload, else none. From now on the values are
// kept.
export function fieldsAsKept(group, values) {
  const kept = keptIn(group)?.values;
  broughtBack.add(group);
  return kept?.length === values.length ? kept : values.map(() => ({ __type__: "update" }));
}

export function keepFields(group, values) {
  if (broughtBack.has(group)) write(group, { address: addressOf(group), values });
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

const keptIn = (group) => (broughtBack.has(group) ? null : read(group, addressOf(group)));

// The part of the address about a group of fields, or "".
function addressOf(group) {
  if (group !== FORM) return "";
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
