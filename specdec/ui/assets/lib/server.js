// Calls the server through the events of the Gradio component that holds the Share menu.
import { definePage } from "./address.js";

let connected;
const component = new Promise((resolve) => (connected = resolve));
let asked = 0; // the number of questions so far
let take; // the answer to the last one

// Another visitor may load another pair. The server names it with the first answer to every act. In between, the page
// asks when somebody comes back to it, and some time after a press, so a page that nobody uses costs nothing.
const EVERY = 15_000; // milliseconds between two questions after presses
let waiting = 0;

// Called by the component's own script when it is on the page.
export function connect(element, props, watch, trigger, page) {
  definePage(page);
  watch("value", () => {
    const { number, code, ...answer } = JSON.parse(props.value);
    if (number === asked) take({ ...answer, code: code && JSON.parse(code) });
  });
  connected({ element, trigger });
  window.addEventListener("focus", askForPair);
  document.addEventListener("visibilitychange", () => document.hidden || askForPair());
  document.addEventListener("click", () => {
    waiting ||= window.setTimeout(() => {
      waiting = 0;
      askForPair();
    }, EVERY);
  });
}

// A page without a server: `element` is for the menu, and `openTab` opens the tab that the address names.
export function standAlone(element, openTab) {
  connected({ element, trigger: (event) => event === "tab" && openTab() });
}

// Renews the page's texts about the pair, if it is another one by now.
export const askForPair = async () => (await component).trigger("pair");

// The element for the menu.
export const menuPlace = async () => (await component).element;

// The form's settings for a link, or what is wrong with them; and the code of a run, if one is given.
export async function askServer(run) {
  const { trigger } = await component;
  asked += 1;
  const answer = new Promise((resolve) => (take = resolve));
  trigger("answer", { number: asked, run: run && JSON.stringify(run) });
  return answer;
}

// Sets the form to the settings in the address.
export const restoreForm = async () => (await component).trigger("restore");

// Opens the tab that the address names.
export const openTab = async () => (await component).trigger("tab");
