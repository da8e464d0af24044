// Explains words of the page: every element with data-word. A resting pointer, the focus or a tap shows its meaning in
// one box, which Escape closes.
import { wordMeaning } from "./definitions.js";
import { el } from "./dom.js";

const EDGE = 12; // pixels between the box and the window's edge
const GAP = 6; // and the word

// A button that says a word, and explains it.
export function word(key, text) {
  const node = el("button", "sd-word", text);
  node.type = "button";
  node.dataset.word = key;
  return node;
}

export function explainWords() {
  const box = el("div", "sd-meaning");
  box.id = "sd-meaning";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);
  let shown = null;
  const show = (node) => {
    if (node === shown) return;
    shown?.removeAttribute("aria-describedby");
    shown = node;
    box.textContent = node ? wordMeaning(node.dataset.word) : "";
    box.hidden = !box.textContent;
    if (box.hidden) return;
    node.setAttribute("aria-describedby", box.id);
    const { left, bottom } = node.getBoundingClientRect();
    const most = document.documentElement.clientWidth - box.offsetWidth - EDGE;
    box.style.left = `${Math.max(EDGE, Math.min(left, most)) + scrollX}px`;
    box.style.top = `${bottom + GAP + scrollY}px`;
  };
  const wordOf = ({ target }) => target.closest?.("[data-word]") ?? null;
  document.addEventListener("pointerover", (event) => show(wordOf(event)));
  document.addEventListener("focusin", (event) => show(wordOf(event)));
  document.addEventListener("click", (event) => show(wordOf(event)));
  document.addEventListener("focusout", () => show(null));
  document.addEventListener("keydown", ({ key }) => key === "Escape" && show(null));
}
