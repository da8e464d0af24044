// Follows the address when the page opens and when it changes. After a reload, it restores what was shown.
import {
  addRecording,
  inAddress,
  settingsInFragment,
  tabInAddress,
  visited,
  withoutRecording,
  withoutRun,
} from "./lib/address.js";
import { button, el } from "./lib/dom.js";
import { state } from "./lib/state.js";
import { keptRace } from "./share/session_state.js";
import { runInAddress } from "./share/link.js";
import { openTab, restoreForm } from "./lib/server.js";
import { onRace } from "./race/current_race.js";
import { onTab } from "./lib/tabs.js";

// `view` shows a race: open(records, origin, text). Its running() says whether one runs here. uncover() shows the race
// again that was shown at cover(), before a recording was opened.
export async function follow(view) {
  const [say, sayTab] = [notice(), notice()];
  let linked = null; // the run of the address that is or was shown
  let replaced = null; // the linked run that a race of the visitor's own replaced

  const openRun = async (kept = null) => {
    const packed = inAddress("run");
    if (packed && view.running())
      return say(
        "The run in this link was not opened, because a race was running. ",
        button("sd-action small", "Open it now", () => openRun()),
      );
    say("");
    try {
      const records = await runInAddress();
      if (packed !== inAddress("run")) return; // another link came meanwhile
      if (kept) view.open(...kept);
      else if (records) view.open(records, "link", () => records.map((record) => JSON.stringify(record)).join("\n"));
      [linked, replaced] = [packed, null];
    } catch (error) {
      say(`The run in this link cannot be shown. ${error.message}`);
      if (kept) view.open(...kept);
    }
  };

  // Opens the recording that the address names, if this page has one of that name.
  const openRecording = async () => {
    const name = inAddress("recording");
    if (!name || !Object.hasOwn(state.recordings, name)) return;
    const answer = await fetch(new URL(state.recordings[name], document.baseURI));
    if (name !== inAddress("recording")) return; // another one was asked for meanwhile
    if (!view.running()) view.cover();
    state.open(await answer.text(), "gallery");
  };
  state.recording = (name) => {
    addRecording(name);
    [run, recording, settings] = [inAddress("run"), name, settingsNow()];
    return openRecording();
  };

  let [run, recording, settings] = [inAddress("run"), inAddress("recording"), settingsNow()];
  window.addEventListener("hashchange", () => {
    // An older entry of the history may name the run that was replaced. Back must not lose the visitor's own.
    if (visited() && replaced && inAddress("run") === replaced) withoutRun();
    const before = [run, settings, recording];
    [run, settings, recording] = [inAddress("run"), settingsNow(), inAddress("recording")];
    openTab();
    sayTab(noSuchTab());
    if (run !== before[0]) openRun();
    if (settings !== before[1]) restoreForm();
    if (recording && recording !== before[2]) openRecording();
    else if (!recording && !run) view.uncover();
  });
  // A race of the visitor's own replaces a recording too.
  onRace((race) => {
    if (["run", "file"].includes(race?.begin.origin) && inAddress("recording")) withoutRecording();
    recording = inAddress("recording");
  });
  // A visitor's own race replaces the linked one, so the address no longer names it.
  onRace((race) => {
    if (!["run", "servers", "file"].includes(race?.begin.origin) || !linked || linked !== inAddress("run")) return;
    withoutRun();
    [run, linked, replaced, settings] = [null, null, linked, settingsNow()];
  });
  visited(); // the entry with which the page was opened
  onTab(() => sayTab(noSuchTab()));
  sayTab(noSuchTab());
  await openRun(inAddress("recording") ? null : keptRace());
  await openRecording();
}

// Shows a message above everything, without removing anything; an empty text removes it.
function notice() {
  const said = el("div", "sd-error sd-linkError");
  said.setAttribute("role", "alert");
  return (words, ...more) => {
    said.replaceChildren(words, ...more);
    if (words) document.querySelector("#sd-top").before(said);
    else said.remove();
  };
}

// A message if the address names an unknown tab; else nothing.
function noSuchTab() {
  const tabs = [...document.querySelectorAll("#sd-tabs [role=tab]")];
  if (tabs.some((tab) => tab.dataset.tabId === tabInAddress())) return "";
  const names = tabs.map((tab) => tab.textContent.trim()).join(", ");
  return `There is no tab \u201c${tabInAddress().slice(0, 40)}\u201d. The tabs are: ${names}.`;
}

// The part of the address about the form.
const settingsNow = () => inAddress("run") ?? String(new URLSearchParams(settingsInFragment()));
