// The tabs and the address: a chosen tab gets an entry in the history, and Back, Forward and links choose tabs.
import { addTab, tabInAddress } from "./address.js";
import { openTab } from "./server.js";

const news = new EventTarget();
let open = "race";
let reported = false; // whether the first report has come
let pressed = false; // since the address last changed by itself

// Gradio reports a tab some time after it opened, whatever opened it, and the first one when the page loads. Until
// somebody presses something, the address has the last word.
document.addEventListener("click", () => (pressed = true), true);
window.addEventListener("hashchange", () => (pressed = false), true);

// Called by Gradio when a tab has opened.
export function tabOpened(name) {
  open = name;
  document.body.dataset.tab = name; // for the style
  if (name !== tabInAddress()) {
    if (pressed && reported) addTab(name);
    else openTab();
  }
  reported = true;
  news.dispatchEvent(new Event("tab"));
}

// Opens a tab for somebody who pressed something else.
export function showTab(name) {
  addTab(name);
  openTab();
}

// Lets the arrow keys, Home and End walk the tabs of a list.
export function walkTabs(list) {
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const tabs = [...list.querySelectorAll("[role=tab]")].filter((tab) => tab.offsetParent);
    const at = tabs.indexOf(event.target);
    const to = { Home: 0, End: tabs.length - 1 }[event.key] ?? (step && at + step + tabs.length);
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = tabs[to % tabs.length];
    next.focus();
    next.click();
  });
}

export const tabShown = () => open;

// Calls back whenever a tab has opened.
export const onTab = (call) => news.addEventListener("tab", call);
