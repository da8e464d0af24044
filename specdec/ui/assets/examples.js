// The row of examples and recorded races above the form.
import { state } from "./lib/state.js";
import { ready } from "./live.js";

// `values` are those of the form's fields for each example. `fill` lets Gradio put `state.example` into the fields.
export function mount(element, fill, values) {
  element.addEventListener("click", async ({ target }) => {
    const chip = target.closest("button");
    if (!chip) return;
    await ready;
    if (chip.name === "recording") return state.recording(chip.value);
    state.example = values[chip.value];
    fill();
  });
}
