// Sets formulas in MathML, which browsers draw and screen readers read.
const PARTS = /frac\(|[A-Za-z\u03a3]+|[\s\S]/g; // "frac(a; b)" is a fraction

const node = (tag, children) => {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  made.append(...children);
  return made;
};

// A formula as an element. It is written as a text: "min(p, q)", "frac(p(x); q(x))", "\u03a3" for a sum.
export function formula(text) {
  const parts = text.match(PARTS);
  const made = node("math", row(parts, ""));
  made.setAttribute("displaystyle", "true"); // otherwise a fraction in a sentence is set too small to read
  return made;
}

// The elements up to `end`, which is taken too.
function row(parts, end) {
  const made = [];
  for (let depth = 0, part; (part = parts.shift()) !== undefined;) {
    if (depth === 0 && part === end) break;
    if (part === "(") depth += 1;
    if (part === ")") depth -= 1;
    if (part === " ") continue;
    if (part === "frac(") made.push(node("mfrac", [node("mrow", row(parts, ";")), node("mrow", row(parts, ")"))]));
    else made.push(node(/[A-Za-z]/.test(part) ? "mi" : /\d/.test(part) ? "mn" : "mo", [part]));
  }
  return made;
}
