// Files that the browser reads and saves itself. The server gets and sends texts, and stores none.
import { button, el, save } from "./dom.js";
import { addPlace } from "./errors.js";
import { inflate } from "./inflate.js";
import { offer } from "./offered.js";

const sizeOf = (bytes) =>
  bytes < 1e6 ? `${Math.ceil(bytes / 1e3)}\u00a0kB` : `${Number((bytes / 1e6).toFixed(1))}\u00a0MB`;

// The text of a file, packed with gzip or not, whatever its name. Throws an Error with the reason if there is none.
export async function textOf(file, most) {
  const refusal = (words) => new Error(`${file.name} ${words}`);
  const limit = `more than ${sizeOf(most)}, the limit of this page.`;
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
      throw refusal(error instanceof RangeError ? `unpacks to ${limit}` : "is a damaged gzip file.");
    }
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw refusal("cannot be read as UTF-8 text; give a file of JSON lines.");
  }
}

// A field for one file. Its value is null or { name, text }. The text is null until it is read, and if it cannot be read.
// Then the server refuses to start, and does not measure without the file.
export function choose(element, props, { id, label, hint, most }) {
  const take = async (file) => {
    const size = sizeOf(file.size);
    set({ name: file.name, text: null }, size);
    zone.setAttribute("aria-busy", "true");
    const mine = turn;
    const [text, refused] = await textOf(file, most).then(
      (text) => [text, ""],
      (error) => [null, error.message],
    );
    if (mine === turn) set({ name: file.name, text }, size, refused);
  };
  const { chooser, name, zone, say, nodes } = field({ id, label, hint, open: "Choose a file" }, ([file, ...more]) => {
    if (more.length) say("These are several files. Drop one file only.");
    else if (file) take(file);
  });
  const remove = button("sd-action", "Remove", () => {
    set(null);
    chooser.focus();
  });
  zone.append(remove);
  let turn = 0; // of the latest file

  const set = (value, size = "", refused = "") => {
    turn += 1;
    props.value = value;
    zone.setAttribute("aria-busy", "false");
    name.classList.toggle("chosen", Boolean(value));
    name.replaceChildren(...(value ? [el("strong", "", value.name), ` ${size}`] : ["or drop it here"]));
    remove.hidden = !value;
    remove.setAttribute("aria-label", `Remove ${value?.name}`);
    say(refused, Boolean(value));
  };
  set(null);
  element.replaceChildren(...nodes);
}

// A field for several files, read as they are given; those that cannot be read are not kept. Its value is a list of
// { name, text }, and the server is told of each change.
export function chooseSeveral(element, props, trigger, { id, label, hint, most }) {
  const kept = [];
  const list = el("ul", "sd-fileList");
  const { chooser, name, say, nodes } = field({ id, label, hint, open: "Add files", multiple: true }, async (given) => {
    const problems = [];
    for (const file of given) {
      try {
        kept.push({ name: file.name, text: await textOf(file, most), size: sizeOf(file.size) });
      } catch (error) {
        problems.push(error.message);
      }
    }
    show(problems.join(" "));
  });
  const show = (refused = "") => {
    say(refused);
    name.textContent = kept.length ? "" : "or drop them here";
    list.replaceChildren(...kept.map((file, number) => row(file, number)));
    props.value = kept.map(({ name, text }) => ({ name, text }));
    trigger("upload");
  };
  const row = (file, number) => {
    const remove = button("sd-action", "Remove", () => {
      kept.splice(number, 1);
      show();
      chooser.focus();
    });
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    const words = [`${number + 1}. `, el("strong", "", file.name), ` ${file.size}`];
    return el("li", "", "", [el("span", "sd-fileName", "", words), remove]);
  };
  name.textContent = "or drop them here";
  element.replaceChildren(...nodes, list);
}

// A title, a button, a place to drop files on, a hint, and a line for errors. take(files) is called with every file.
function field({ id, label, hint, open, multiple = false }, take) {
  const chooser = el("input", "sd-file");
  Object.assign(chooser, { type: "file", id: `${id}-file`, multiple });
  chooser.setAttribute("aria-labelledby", `${id}-label ${id}-open`);
  chooser.setAttribute("aria-describedby", `${id}-hint`);
  const title = el("h3", "", label);
  const opener = el("label", "sd-action", open);
  const words = el("p", "sd-hint", hint);
  Object.assign(title, { id: `${id}-label` });
  Object.assign(opener, { id: `${id}-open`, htmlFor: chooser.id });
  Object.assign(words, { id: `${id}-hint` });
  const name = el("span", "sd-fileName");
  name.setAttribute("role", "status");
  const problem = el("p", "sd-error");
  problem.setAttribute("role", "alert");
  problem.hidden = true;
  let held = false; // by a chosen file, which goes by itself
  const say = (refused, chosen = false) => {
    held = chosen;
    problem.textContent = refused;
    problem.hidden = !refused;
  };
  addPlace(problem, (gone) => !held && gone(problem) && say(""));
  const zone = el("div", "sd-drop", "", [chooser, opener, name]);
  chooser.addEventListener("change", () => {
    take([...chooser.files]);
    chooser.value = ""; // allows choosing the same file again after a change
  });
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
  return { chooser, name, zone, say, nodes: [title, zone, words, problem] };
}

// Buttons that save the files of the value, which maps names to texts; none without files. `key` is the results' name.
export function saveButtons(element, props, watch, { label, hint, key }) {
  const update = () => {
    const files = props.value ? JSON.parse(props.value) : {};
    const parts = [el("h3", "", label), savers(files), el("p", "sd-hint", hint)];
    element.replaceChildren(...(Object.keys(files).length ? parts : []));
    offer(key, { files });
  };
  watch("value", update);
  update();
}

// A button for each file, which saves it.
export const savers = (files) =>
  el(
    "div",
    "sd-actions",
    "",
    Object.entries(files).map(([name, text]) => button("sd-action", name, () => save(name, text))),
  );
