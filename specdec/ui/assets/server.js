// Calls the server through the events of the Gradio component that holds the Share menu.
import { definePage } from "./address.js";

let connected;
const component = new Promise((resolve) => (connected = resolve));
let asked = 0; // the number of questions so far
let take; // the answer to the last one

// Called by the component's own script when it is on the page.
export function connect(element, props, watch, trigger, page) {
  definePage(page);
  watch("value", () => {
    const { number, code, ...answer } = JSON.parse(props.value);
    if (number === asked) take({ ...answer, code: code && JSON.parse(code) });
  });
  connected({ element, trigger });
}

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
