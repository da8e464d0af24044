// The panel of pairs below the header: opening, closing, and how many ways to draft it shows.
const ALL = "#sd-methods-all button";

export function listenToPanel() {
  document.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest?.(".sd-changePair")) changing(!document.body.classList.contains("sd-changing"));
    else if (target.closest?.("#sd-change-close")) changing(false);
    else if (target.closest?.(ALL)) showAll(target.closest(ALL).getAttribute("aria-expanded") !== "true");
    // Somebody who pressed a way to draft has chosen. The keyboard, whose clicks have no detail, walks on from there.
    else if (event.detail && target.closest?.("#sd-method label")) chosen(target.closest("label"));
  });
  document.addEventListener("keydown", ({ key, target }) => {
    if (key !== "Escape" || !document.body.classList.contains("sd-changing")) return;
    const part = /** @type {Element} */ (target);
    // Escape closes an open list of the panel first.
    if (part.closest("#sd-change, #sd-header") && !part.matches("#sd-change [aria-expanded=true]")) changing(false);
  });
}

// Opens or closes the panel. When it closes, the keyboard goes back to the button that opens it.
function changing(open) {
  document.body.classList.toggle("sd-changing", open);
  const opener = document.querySelector(".sd-changePair");
  opener?.setAttribute("aria-expanded", String(open));
  if (!open) opener?.focus({ preventScroll: true });
}

// All ways to draft, or the usual ones and that which is chosen. The style reads the attribute.
function showAll(all) {
  document.querySelector(ALL).setAttribute("aria-expanded", String(all));
}

// Folds the list again and brings the button below it into view. By then the way is checked, so it stays shown and keeps
// the focus. It is brought into view last, so that it is in view where the two do not fit together. The panel grows once
// the server answers, where the way has a field of its own.
function chosen(label) {
  requestAnimationFrame(() => {
    showAll(false);
    const grows = new ResizeObserver(() => {
      for (const part of [document.querySelector("#sd-load"), label]) part.scrollIntoView({ block: "nearest" });
    });
    grows.observe(document.querySelector("#sd-change"));
    setTimeout(() => grows.disconnect(), 3000);
  });
}
