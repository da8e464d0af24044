// Sets formulas in MathML, which browsers draw and screen readers read.
const PARTS = /[A-Za-z\u03a3]+|\d+|\S/g;

// A formula in one line as an element. It is written as a text: "min(p, q)", "p / q", "\u03a3" for a sum.
export function formula(text) {
  return node(
    "math",
    text.match(PARTS).map((part) => {
      const made = node(/[A-Za-z]/.test(part) ? "mi" : /\d/.test(part) ? "mn" : "mo", [part]);
      // The style slants it: by itself a browser takes its letter from another font, which has another size.
      if (/^[a-z]$/.test(part)) made.setAttribute("mathvariant", "normal");
      return made;
    }),
  );
}

const node = (tag, children) => {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  made.append(...children);
  return made;
};
