// Creates elements with text, never with markup: text of models and people is set as textContent only.
export function el(tag, className = "", text = "", children = []) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  node.append(...children);
  return node;
}

// A sentence with its ranges and dates in one piece each: no line ends inside 8.5–10.3x or 28 November 2026.
const PIECE = /((?:\u03b3 )?\S*\d\u2013\d\S*|\d+ [A-Z][a-z]+ \d{4})/;
export const together = (text) =>
  text.split(PIECE).map((part, at) => (at % 2 ? el("span", "sd-together", part) : part));

export function button(className, text, onClick, label = "") {
  const node = el("button", className, text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", onClick);
  return node;
}

// A button with a drawn sign, because fonts lack half of a player's symbols.
const SIGNS = {
  play: "M4 2 L14 8 L4 14 Z",
  pause: "M3 2 H7 V14 H3 Z M9 2 H13 V14 H9 Z",
  start: "M2 2 H4 V14 H2 Z M14 2 L5 8 L14 14 Z",
  end: "M2 2 L11 8 L2 14 Z M12 2 H14 V14 H12 Z",
  back: "M11 2 L5 8 L11 14 L9 14 L3 8 L9 2 Z",
  on: "M5 2 L11 8 L5 14 L7 14 L13 8 L7 2 Z",
  close: "M3 4.4 L4.4 3 L8 6.6 L11.6 3 L13 4.4 L9.4 8 L13 11.6 L11.6 13 L8 9.4 L4.4 13 L3 11.6 L6.6 8 Z",
};
export function sign(name, label, onClick) {
  const node = button("sd-icon", "", onClick, label);
  drawSign(node, name);
  return node;
}
export function drawSign(node, name) {
  const image = svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" });
  image.append(svg("path", { d: SIGNS[name], fill: "currentColor" }));
  node.replaceChildren(image);
}

export function svg(tag, attributes, children = []) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function fold(className, title, children) {
  return el("details", `sd-fold ${className}`, "", [el("summary", "", title), ...children]);
}

// Seconds since 1970 as a date: 24 November 2026, as on the whole page.
export const dayOf = (at) => new Date(at * 1000).toLocaleDateString("en-GB", { dateStyle: "long" });

// A probability; a dash if there is none, as in a link.
export const NONE = "\u2013";
export const chance = (value) => {
  if (value === null || value === undefined) return NONE;
  return value === 0 || value === 1 ? String(value) : value.toPrecision(3);
};

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const narrow = () => matchMedia("(max-width: 640px)").matches;
export const wide = () => matchMedia("(min-width: 1760px)").matches; // as in wide.css

// Lets the browser save a text, or bytes, as a file.
export function save(name, content) {
  const anchor = el("a");
  anchor.href = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

// Calls back once: at the next frame or, if none comes for a while, as in a hidden tab, by a timer. Returns a function
// that calls it off.
const LATE = 250; // milliseconds
export function nextFrame(call) {
  let due = true;
  const off = () => {
    due = false;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
  const run = () => {
    if (!due) return;
    off();
    call();
  };
  const frame = requestAnimationFrame(run);
  const timer = setTimeout(run, LATE);
  return off;
}

// Calls back when the node's width changes, also when it becomes visible.
export function onWidth(node, redraw) {
  let width = node.clientWidth;
  new ResizeObserver(() => {
    if (node.clientWidth === width) return;
    width = node.clientWidth;
    redraw();
  }).observe(node);
}

// Calls back when the theme or the node's width changes.
export function onLook(node, redraw) {
  new MutationObserver(redraw).observe(document.body, { attributeFilter: ["class"] });
  onWidth(node, redraw);
}

// For a room: texts and strips are larger. Views that draw for themselves are told by `onLook`.
export const isLarge = () => document.body.classList.contains("sd-large");
export const enlarge = (large) => document.body.classList.toggle("sd-large", large);
export const scaleOf = () => (isLarge() ? 1.5 : 1); // of what views draw for themselves

// The page's colours in the present theme, for one drawing. Each is looked up once.
export const colourOf = (node) => {
  const style = getComputedStyle(node);
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--sd-${name}`).trim());
    return known.get(name);
  };
};
