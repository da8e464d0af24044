// Makes and reads links to a run and to settings.
import { inAddress, linkWith, resultLink, settingsInFragment, toBase64 } from "../lib/address.js";
import { keptFields } from "./session_state.js";
import { opened } from "./envelope.js";
import { pack, unpack } from "./packing.js";
import { checked } from "../race/race.js";

// The settings in the address, as texts by name: its own, or those of its run. None after a reload, because the form
// is restored then.
export async function settingsInAddress() {
  if (keptFields()) return {};
  if (!inAddress("run")) return settingsInFragment();
  try {
    return (await runInAddress())[0].settings;
  } catch {
    return {}; // the view shows what is wrong
  }
}

// The records of the run in the address, or null. Throws an Error that says what is wrong with it.
export async function runInAddress() {
  const packed = inAddress("run");
  return packed ? checked(await opened(packed, unpack)) : null;
}

export const settingsLink = (settings) => linkWith(settings);

// The link to a run; null if it would be too long.
export async function runLink(race) {
  const packed = await pack(race);
  return packed && resultLink({ run: toBase64(packed) });
}
