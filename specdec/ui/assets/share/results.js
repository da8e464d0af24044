// Results of a measurement as files and links. The server checks them.
import { resultLink, resultsInAddress, toBase64 } from "../lib/address.js";
import { el } from "../lib/dom.js";
import { addPlace, mended } from "../lib/errors.js";
import { textOf } from "../lib/files.js";
import { offer } from "../lib/offered.js";
import { opened as unpacked } from "./envelope.js";
import { packResults, packTest, unpackResults, unpackTest } from "./packed_results.js";
import { Copyable } from "./share.js";

// What is said beside a link, and where there is none because it would be too long.
const OF_A_PLAN = ["The link contains figures only, no text.", "These results are too long for a link. Save them."];
// By the name of results, if they are not those of a plan.
const PACKS = { lossless: packTest };
const UNPACKS = { lossless: unpackTest };
const WORDS = {
  lossless: [
    "The link contains the figures of the test and the continuations in its chart.",
    "This result is too long for a link.",
  ],
};

// The results in the address are opened by the server. Until it has opened or refused them, no recorded result is shown.
let opened = () => {};
const expected = () => {
  opened();
  return new Promise((resolve) => (opened = () => resolve(undefined)));
};
let opening = resultsInAddress() ? expected() : Promise.resolve();
export const whenOpened = () => opening;
export const resultsOpened = () => opened();

// Sends the results in the address as the value, now and when it names others: { text }, or { problem }.
export function followAddress(props, trigger) {
  let shown = "";
  const read = async () => {
    const { key, packed } = resultsInAddress() ?? { packed: "" };
    if (packed === shown) return;
    shown = packed;
    mended("address");
    if (!key) return opened();
    opening = expected();
    const value = await unpacked(packed, UNPACKS[key] ?? unpackResults).then(
      (text) => ({ text }),
      (error) => ({ problem: error.message }),
    );
    if (packed !== shown) return; // the address names others by now
    props.value = value;
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

// The link to results, from one JSON value: { text, code }. `text` is that of a results file, and empty if it has too
// many calls for a link. `code`, if there is any, is for the Share menu, which knows the results under `name`.
export function link(element, props, watch, { key, name }) {
  const field = new Copyable("Link to these results");
  const update = async () => {
    const { value } = props;
    const found = value ? JSON.parse(value) : null;
    const packed = found?.text ? await (PACKS[key] ?? packResults)(found.text) : null;
    if (value !== props.value) return; // there are other results by now
    const address = packed && resultLink({ [key]: toBase64(packed) });
    const words = (WORDS[key] ?? OF_A_PLAN)[address ? 0 : 1];
    field.set(address ?? "", words);
    offer(name, { link: found && (address ?? ""), code: found?.code, words });
    element.replaceChildren(...(found ? [el("h3", "", "Link to these results"), field.node] : []));
  };
  watch("value", update);
  update();
}
