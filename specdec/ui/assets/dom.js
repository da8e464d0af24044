// Elements with text, never with markup: model text and prompts only ever pass through textContent.
export function el(tag, className = "", text = "", children = []) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  node.append(...children);
  return node;
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const narrow = () => matchMedia("(max-width: 640px)").matches;
