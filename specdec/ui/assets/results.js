// Results of a measurement as files and links. The server packs, unpacks and checks them.
import { el } from "./dom.js";
import { textOf } from "./files.js";
import { page } from "./link.js";
import { Copyable } from "./share.js";

const KEYS = ["sweep", "bench"];

// The results in the address, packed; empty where there are none.
export const inAddress = (key) => new URLSearchParams(location.hash.slice(1)).get(key) ?? "";

// Has the tab opened whose results the address holds.
export function openAddress() {
  const key = KEYS.find((key) => inAddress(key));
  if (key) document.querySelector(`#sd-${key}-address`).click();
}

// A button for one file. Its value is { name, text }, and the server is told as soon as it is read.
export function open(element, props, trigger, { id, label, most }) {
  const chooser = el("input", "sd-file");
  Object.assign(chooser, { type: "file", id: `${id}-file` });
  const name = el("label", "sd-action", label);
  name.htmlFor = chooser.id;
  const problem = el("p", "sd-error");
  problem.setAttribute("role", "alert");
  problem.hidden = true;
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    chooser.value = ""; // the same file, changed, can be chosen again
    if (!file) return;
    problem.hidden = true;
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

// The link to the results that the value holds, packed; words where they are too long for one, and nothing for null.
export function link(element, props, watch, { key, longest }) {
  const field = new Copyable("Link to these results");
  const update = () => {
    const address = `${page()}#${key}=${props.value}`;
    const fits = Boolean(props.value) && address.length <= longest;
    field.set(fits ? address : "", fits ? "Figures only: no text of any call." : "Too long for a link; take the file.");
    element.replaceChildren(...(typeof props.value === "string" ? [el("h3", "", "Link"), field.node] : []));
  };
  watch("value", update);
  update();
}
