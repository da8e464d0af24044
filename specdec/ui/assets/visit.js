// Follows the address, as the page opens and whenever it changes; after a reload, brings back what was on show.
import { inAddress, settingsInFragment, tabInAddress, withoutRun } from "./address.js";
import { button, el } from "./dom.js";
import { keptRace } from "./kept.js";
import { runInAddress } from "./link.js";
import { openTab, restoreForm } from "./server.js";
import { onRace } from "./shown.js";

// `view` shows a race: open(records, origin, text). Its running() tells whether one runs here.
export async function follow(view) {
  const [say, sayTab] = [notice(), notice()];
  let linked = null; // the run of the address that is or was on show

  const openRun = async (kept = null) => {
    const packed = inAddress("run");
    if (packed && view.running())
      return say(
        "The run in this link was not opened: a race is running. ",
        button("sd-action small", "Open it now", () => openRun()),
      );
    say("");
    try {
      const records = await runInAddress();
      if (packed !== inAddress("run")) return; // another link came meanwhile
      if (kept) view.open(...kept);
      else if (records) view.open(records, "link", () => records.map((record) => JSON.stringify(record)).join("\n"));
      linked = packed;
    } catch (error) {
      say(`The run in this link cannot be shown. ${error.message}`);
      if (kept) view.open(...kept);
    }
  };

  let [run, settings] = [inAddress("run"), settingsNow()];
  window.addEventListener("hashchange", () => {
    const before = [run, settings];
    [run, settings] = [inAddress("run"), settingsNow()];
    openTab();
    sayTab(noSuchTab());
    if (run !== before[0]) openRun();
    if (settings !== before[1]) restoreForm();
  });
  // A race of one's own takes the place of the linked one: the address names that no more.
  onRace((race) => {
    if (!["run", "file"].includes(race?.begin.origin) || !linked || linked !== inAddress("run")) return;
    withoutRun();
    [run, linked] = [null, null];
  });
  document.querySelector("#sd-tabs").addEventListener("click", ({ target }) => {
    if (target.closest("[role=tab]")) sayTab("");
  });
  if (inAddress("tab")) openTab();
  sayTab(noSuchTab());
  await openRun(keptRace());
}

// Says something above everything, which stays; no words take it away.
function notice() {
  const said = el("div", "sd-error sd-linkError");
  said.setAttribute("role", "alert");
  return (words, ...more) => {
    said.replaceChildren(words, ...more);
    if (words) document.querySelector("#sd-top").before(said);
    else said.remove();
  };
}

// That the address names a tab that is not there; else nothing.
function noSuchTab() {
  const tabs = [...document.querySelectorAll("#sd-tabs [role=tab]")];
  if (tabs.some((tab) => tab.dataset.tabId === tabInAddress())) return "";
  const names = tabs.map((tab) => tab.textContent.trim()).join(", ");
  return `There is no tab \u201c${tabInAddress().slice(0, 40)}\u201d. The tabs are: ${names}.`;
}

// What the address says of the form.
const settingsNow = () => inAddress("run") ?? String(new URLSearchParams(settingsInFragment()));
