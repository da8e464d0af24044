// One rule for every error of the page: it goes as soon as its cause may be gone, which is when a person changes a field
// or begins something in the same part of the page. An error that names its setting (data-of) waits for that field.
const PARTS = "#sd-change, #sd-bench-compare, [role=tabpanel]";
const ACTS =
  "button:is(.sd-go, .sd-chip, .sd-again), #sd-run, #sd-check, #sd-load, #sd-server-check, #sd-whatif-race, .sd-files button";
const ERRORS = ".sd-error, .sd-findings, .sd-servers";
// The tab Best gamma measures the race's prompt, so its errors may be about that.
const [PROMPT, ABOUT_PROMPT] = ["#sd-prompt, #sd-chat, .sd-chip", "#sd-gamma-status, #sd-whatif-status"];
const places = [];

// Adds a place with errors. `remove(gone)` removes those elements for which `gone` is true.
export function addPlace(node, remove) {
  if (!places.length) listen();
  places.push({ node, remove });
}

// The same for a component of Gradio whose value is HTML. A value of Gradio's that is equal is drawn again.
export function watchErrors(element, props) {
  addPlace(element, (gone) => {
    const shown = document.createElement("template"); // runs and loads nothing
    shown.innerHTML = props.value ?? "";
    const errors = [...shown.content.querySelectorAll(ERRORS)].filter(gone);
    for (const error of errors) error.remove();
    if (errors.length) props.value = shown.innerHTML;
  });
}

// Removes errors with this cause, which is gone.
export function mended(cause) {
  for (const { remove } of places) remove(({ dataset }) => dataset.of === cause);
}

// Another pair is loaded, so all refusals of the tabs may be out of date.
export function pairChanged() {
  for (const { node, remove } of places)
    if (node.closest("[role=tabpanel]")) remove(({ dataset }) => dataset.of !== "address");
}

function listen() {
  const changed = ({ target }) =>
    clear(target, ({ dataset }) => !dataset.of || target.closest(`.sd-of-${dataset.of}`) !== null);
  // Before the field's own listeners, which may report a new error.
  for (const event of ["input", "drop"]) document.addEventListener(event, changed, true);
  document.addEventListener(
    "click",
    ({ target }) => {
      const act = target.closest?.(ACTS);
      if (act) clear(act, () => true);
    },
    true,
  );
}

function clear(target, gone) {
  const part = target.closest(PARTS);
  const prompt = target.closest(PROMPT);
  for (const { node, remove } of places)
    if ((part && node.closest(PARTS) === part) || (prompt && node.closest(ABOUT_PROMPT))) remove(gone);
}
