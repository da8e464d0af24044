// Results of a measurement as files and links. The server packs, unpacks and checks them.
import { resultLink, resultsInAddress } from "../lib/address.js";
import { el } from "../lib/dom.js";
import { addPlace, mended } from "../lib/errors.js";
import { textOf } from "../lib/files.js";
import { offer } from "../lib/offered.js";
import { Copyable, FIGURES_ONLY, TOO_LONG } from "./share.js";

// The results in the address are opened by the server. Until it has opened or refused them, no recorded result is shown.
let opened = () => {};
const expected = () => {
  opened();
  return new Promise((resolve) => (opened = () => resolve(undefined)));
};
let opening = resultsInAddress() ? expected() : Promise.resolve();
export const whenOpened = () => opening;
export const resultsOpened = () => opened();

// Sends the packed results as the value, now and when the address names others.
export function followAddress(props, trigger) {
  let shown = "";
  const read = () => {
    const { key, packed } = resultsInAddress() ?? { packed: "" };
    if (packed === shown) return;
    shown = packed;
    mended("address");
    if (!key) return;
    opening = expected();
    props.value = packed;
    trigger(key);
  };
  window.addEventListener("hashchange", read);
  read();
}

// A button for one file. Its value is { name, text }. The server gets it when it is read.
export function open(element, props, trigger, { id, label, most }) {
  const chooser = el("input", "sd-file");
  Object.assign(chooser, { type: "file", id: `${id}-file` });
  const name = el("label", "sd-action", label);
  name.htmlFor = chooser.id;
  const problem = el("p", "sd-error");
  problem.setAttribute("role", "alert");
  problem.hidden = true;
  addPlace(problem, (gone) => (problem.hidden ||= gone(problem)));
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    chooser.value = ""; // allows choosing the same file again after a change
    if (!file) return;
    try {
      props.value = { name: file.name, text: await textOf(file, most) };
      trigger("upload");
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  });
  element.replaceChildren(chooser, name, problem);
}

// The link to results, from one JSON value: { packed, code }. `packed` is empty if they are too long for a link, and
// `code`, if there is any, is for the Share menu.
export function link(element, props, watch, { key }) {
  const field = new Copyable("Link to these results");
  const update = () => {
    const found = props.value ? JSON.parse(props.value) : null;
    const address = found?.packed ? resultLink({ [key]: found.packed }) : null;
    field.set(address ?? "", address ? FIGURES_ONLY : TOO_LONG);
    offer(key, { link: found && (address ?? ""), code: found?.code });
    element.replaceChildren(...(found ? [el("h3", "", "Link to these results"), field.node] : []));
  };
  watch("value", update);
  update();
}
