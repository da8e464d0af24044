// A plot in SVG: two axes that begin at 0, step lines, signs at points, texts. Lengths are pixels.
import { svg } from "../lib/dom.js";

export const LINE = 18; // of a text, from one line to the next

// The next of 1, 2, 5, 10, 20 ... that is not below a value.
export const rounded = (value) => {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((step) => step * power >= value) ?? 10) * power;
};

// The marks of an axis from 0 to `end`, at most `most` of them after the 0: [value, text].
export function ticks(end, most) {
  const step = rounded(end / most);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const count = Math.floor(end / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, at) => [at * step, (at * step).toFixed(decimals)]);
}

export class Plot {
  #space = { left: 0, top: 0, width: 1, height: 1 };
  #range = [1, 1];
  #scale = 1; // pixels of the page for a pixel of the drawing

  constructor() {
    this.node = svg("svg", { class: "sd-plot", role: "img" });
  }

  // `space`: the room for the lines, the margins around it, and the scale of the drawing. `range`: the ends of both axes.
  frame(space, range, titles, marks) {
    this.#space = space;
    this.#range = range;
    this.#scale = space.scale;
    const { left, top, width, height } = space;
    const [right, bottom] = [left + width, top + height];
    const [whole, high] = [right + space.right, bottom + space.bottom];
    this.node.setAttribute("viewBox", `0 0 ${whole} ${high}`);
    this.node.setAttribute("width", String(whole * space.scale));
    this.node.setAttribute("height", String(high * space.scale));
    const [across, up] = [ticks(range[0], marks[0]), ticks(range[1], marks[1])];
    const grid = up.map(([value]) => `M${left},${this.y(value)}H${right}`).join("");
    this.node.replaceChildren(
      svg("path", { class: "sd-grid", d: grid }),
      svg("path", { class: "sd-axis", d: `M${left},${top}V${bottom}H${right}` }),
      ...across.map(([value, text]) => words([text], this.x(value), bottom + 17, "middle", "sd-tick")),
      ...up.map(([value, text]) => words([text], left - 6, this.y(value) + 5, "end", "sd-tick")),
      words(titles[0], left + width / 2, bottom + 38, "middle", "sd-axisTitle"),
      svg("g", { transform: `translate(13 ${top + height / 2}) rotate(-90)` }, [
        words(titles[1], 0, 0, "middle", "sd-axisTitle"),
      ]),
    );
  }

  x(value) {
    return this.#space.left + (value / this.#range[0]) * this.#space.width;
  }

  y(value) {
    return this.#space.top + (1 - value / this.#range[1]) * this.#space.height;
  }

  // Where a point of both axes is in the page, in pixels from the corner of the drawing.
  place(x, y) {
    return [this.x(x) * this.#scale, this.y(y) * this.#scale];
  }

  // The values of both axes at a point of the page.
  at({ clientX, clientY }) {
    const box = this.node.getBoundingClientRect();
    const { left, top, width, height } = this.#space;
    const [fromLeft, fromTop] = [(clientX - box.left) / this.#scale, (clientY - box.top) / this.#scale];
    const [across, down] = [(fromLeft - left) / width, (fromTop - top) / height];
    return [across * this.#range[0], (1 - down) * this.#range[1]];
  }

  // A line through points whose second value changes at each of them.
  steps(name, xs, ys, dash) {
    if (!xs.length) return;
    const move = (at) => `H${this.x(xs[at]).toFixed(1)}V${this.y(ys[at]).toFixed(1)}`;
    const start = `M${this.x(xs[0]).toFixed(1)},${this.y(ys[0]).toFixed(1)}`;
    const d =
      start +
      xs
        .slice(1)
        .map((_, at) => move(at + 1))
        .join("");
    const path = svg("path", { class: `sd-line ${name}`, d });
    if (/\d/.test(dash ?? "")) path.setAttribute("stroke-dasharray", dash); // else "solid"
    this.node.append(path);
  }

  // A shape of 10 by 10 pixels around a point.
  sign(shape, x, y) {
    const transform = `translate(${this.x(x) - 5} ${this.y(y) - 5})`;
    this.node.append(svg("path", { class: "sd-sign", d: shape, transform }));
  }

  // Lines of text whose last one stands on `y`, in pixels.
  label(lines, x, y, anchor, name) {
    this.node.append(words(lines, x, y - (lines.length - 1) * LINE, anchor, name));
  }

  // A bracket from one value of the first axis to another, in pixels of height.
  bracket(from, to, y) {
    const [x, end] = [this.x(from), this.x(to)];
    this.node.append(svg("path", { class: "sd-bracket", d: `M${x},${y - 4}v8M${end},${y - 4}v8M${x},${y}H${end}` }));
  }
}

// Lines of text from `y` downwards.
function words(lines, x, y, anchor, name) {
  const text = svg("text", { class: name, x: String(x), y: String(y), "text-anchor": anchor });
  lines.forEach((line, at) => {
    const part = svg("tspan", { x: String(x), dy: String(at ? LINE : 0) });
    part.textContent = line;
    text.append(part);
  });
  return text;
}
