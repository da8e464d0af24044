// Files that the browser reads and saves itself: the server takes and gives texts, and its disk holds none.
import { button, el, save } from "./dom.js";
import { inflate } from "./inflate.js";

const sizeOf = (bytes) =>
  bytes < 1e6 ? `${Math.ceil(bytes / 1e3)}\u00a0kB` : `${Number((bytes / 1e6).toFixed(1))}\u00a0MB`;

// The text of a file, packed with gzip or not, whatever its name says. Throws an Error that says why there is none.
export async function textOf(file, most) {
  const refusal = (words) => new Error(`${file.name} ${words}`);
  const limit = `more than ${sizeOf(most)}; this page takes no more.`;
  if (file.size > most) throw refusal(`has ${limit}`);
  let bytes;
  try {
    bytes = new Uint8Array(await file.arrayBuffer());
  } catch {
    throw refusal("cannot be read. Is it a folder?");
  }
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
    try {
      bytes = await inflate(bytes, "gzip", most);
    } catch (error) {
      throw refusal(error instanceof RangeError ? `unpacks to ${limit}` : "is packed with gzip, and damaged.");
    }
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw refusal("cannot be read as UTF-8 text; give a file of JSON lines.");
  }
}

// A field for one file. Its value is null or { name, text }; the text is null until it is read, and where it cannot be,
// so that the server refuses to start and does not measure without the file.
export function choose(element, props, { id, label, hint, most }) {
  const chooser = el("input", "sd-file");
  Object.assign(chooser, { type: "file", id: `${id}-file` });
  chooser.setAttribute("aria-labelledby", `${id}-label ${id}-open`);
  chooser.setAttribute("aria-describedby", `${id}-hint`);
  const title = el("h3", "", label);
  const open = el("label", "sd-action", "Choose a file");
  const words = el("p", "sd-hint", hint);
  Object.assign(title, { id: `${id}-label` });
  Object.assign(open, { id: `${id}-open`, htmlFor: chooser.id });
  Object.assign(words, { id: `${id}-hint` });
  const name = el("span", "sd-fileName");
  name.setAttribute("role", "status");
  const remove = button("sd-action", "Remove", () => {
    set(null);
    chooser.focus();
  });
  const problem = el("p", "sd-error");
  problem.setAttribute("role", "alert");
  const zone = el("div", "sd-drop", "", [chooser, open, name, remove]);
  let turn = 0; // of the file that was given last

  const set = (value, size = "", refused = "") => {
    turn += 1;
    props.value = value;
    name.classList.toggle("chosen", Boolean(value));
    name.replaceChildren(...(value ? [el("strong", "", value.name), ` ${size}`] : ["or drop it here"]));
    remove.hidden = !value;
    remove.setAttribute("aria-label", `Remove ${value?.name}`);
    say(refused);
  };
  const say = (refused) => {
    problem.textContent = refused;
    problem.hidden = !refused;
  };
  const take = async (file) => {
    const size = sizeOf(file.size);
    set({ name: file.name, text: null }, size);
    const mine = turn;
    const [text, refused] = await textOf(file, most).then(
      (text) => [text, ""],
      (error) => [null, error.message],
    );
    if (mine === turn) set({ name: file.name, text }, size, refused);
  };
  chooser.addEventListener("change", () => {
    const [file] = chooser.files;
    if (file) take(file);
    chooser.value = ""; // the same file, changed, can be chosen again
  });
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const [file, ...more] = event.dataTransfer.files;
    if (more.length) say("These are several files; drop one.");
    else if (file) take(file);
  });
  set(null);
  element.replaceChildren(title, zone, words, problem);
}

// Buttons that save the files of the value, texts by name; nothing where there are none.
export function offer(element, props, watch, { label, hint }) {
  const update = () => {
    const files = Object.entries(props.value ? JSON.parse(props.value) : {});
    const buttons = files.map(([name, text]) => button("sd-action", name, () => save(name, text)));
    const parts = [el("h3", "", label), el("div", "sd-actions", "", buttons), el("p", "sd-hint", hint)];
    element.replaceChildren(...(files.length ? parts : []));
  };
  watch("value", update);
  update();
}
