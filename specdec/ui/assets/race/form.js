// The form in one line: the settings of the next race, and the draft length to drag. Edit opens the whole form.
import { button, el } from "../lib/dom.js";
import { measuredHere } from "../lib/origins.js";
import { inOneLine } from "../lib/sentences.js";
import { whatIfOf } from "./gamma.js";

const OPEN = "sd-editing"; // on the body, while the form is open
// What a text must obey, by kind. A recorded function cannot be asked for again.
const GRAMMARS = new Map([
  ["json-schema", "JSON schema"],
  ["regex", "regular expression"],
  ["lark", "Lark grammar"],
]);
const LONGEST = 160; // characters of the prompt in the line, before the style cuts it

export class FormLine {
  held = false;

  // `onGamma` is called with the draft length while it is dragged, `onChange` when a person has changed a field.
  constructor(onGamma, onChange) {
    this.prompt = button("sd-linePrompt", "", () => this.open(true));
    this.prompt.title = "Edit the prompt and the settings";
    this.next = el("b", "", "Next run: "); // the shown race did not come from this form
    this.next.hidden = true;
    this.asked = document.createTextNode("");
    this.prompt.append(this.next, this.asked);
    this.settings = el("span", "sd-lineSettings");
    this.value = el("output", "sd-lineGamma");
    this.unit = el("span", "sd-lineUnit", "guesses a round");
    this.slider = el("input", "sd-scrub");
    Object.assign(this.slider, { type: "range", min: 0, max: 16, step: 1, id: "sd-line-gamma" });
    this.slider.setAttribute("aria-label", "Draft length \u03b3");
    this.edit = button("sd-action", "Edit", () => this.open(!this.isOpen));
    this.edit.setAttribute("aria-expanded", "false");
    this.edit.setAttribute("aria-controls", "sd-ask");
    this.gamma = el("label", "sd-lineLength", "", [this.value, this.unit, this.slider]);
    this.gamma.dataset.word = "gamma";
    this.node = el("div", "sd-lineForm", "", [this.prompt, this.gamma, this.settings, this.edit]);
    this.slider.addEventListener("input", () => {
      const gamma = Number(this.slider.value);
      this.value.textContent = `\u03b3 ${gamma}`;
      type("#sd-gamma input", String(gamma));
      onGamma(gamma);
    });
    const form = document.querySelector("#sd-ask");
    for (const event of ["input", "change", "click"]) {
      // Gradio writes some values shortly after the event.
      form?.addEventListener(event, () => setTimeout(() => (this.read(), onChange()), 60));
    }
    this.read();
  }

  // The present values of the fields.
  read() {
    const prompt = valueOf("#sd-prompt textarea");
    this.asked.textContent = inOneLine(prompt.slice(0, LONGEST)) || "No prompt yet";
    const chosen = gammaChosen();
    this.slider.disabled = this.held || typeof chosen !== "number";
    this.unit.hidden = typeof chosen !== "number";
    this.value.textContent = `\u03b3 ${typeof chosen === "number" ? chosen : chosen || "?"}`;
    if (typeof chosen === "number") this.slider.value = String(chosen);
    const temperature = Number(valueOf("#sd-temperature input"));
    const sampling = temperature > 0 ? `temperature ${temperature}` : "greedy";
    const words = [`${valueOf("#sd-tokens input")} tokens`, sampling, GRAMMARS.get(grammarAsked().kind)];
    this.settings.textContent = words.filter(Boolean).join(" \u00b7 ");
  }

  // Whether the fields of the line are other than the settings of a race that has run.
  differs(race) {
    const { params, gamma } = race.lanes.get("speculative")?.started ?? {};
    if (!params) return false;
    const then = [race.begin.settings.prompt, params.max_new_tokens, params.temperature].map(String);
    const now = ["#sd-prompt textarea", "#sd-tokens input", "#sd-temperature input"].map(valueOf);
    const [grammar, asked] = [params.grammar ?? {}, grammarAsked()];
    if ((grammar.kind ?? "") !== asked.kind || (asked.kind && grammar.text !== asked.text)) return true;
    const chosen = gammaChosen(); // another number is computed from the race, and says so
    return now.some((value, at) => value !== then[at]) || (typeof chosen !== "number" && chosen !== gamma);
  }

  // Sets the fields of the line to the settings of a race, so that Run race runs what is shown.
  fill({ begin, lanes }) {
    const { params, gamma } = lanes.get("speculative")?.started ?? {};
    if (!params) return;
    const fixed = typeof gamma === "number";
    type("#sd-prompt textarea", begin.settings.prompt ?? "");
    type("#sd-tokens input", String(params.max_new_tokens));
    type("#sd-temperature input", String(params.temperature));
    choose("choice", fixed ? "fixed" : gamma === "auto" ? "auto" : "confidence");
    const grammar = GRAMMARS.has(params.grammar?.kind) ? params.grammar : null;
    choose("grammar", grammar?.kind ?? "");
    if (grammar) type("#sd-grammar-text textarea", grammar.text);
    if (fixed) type("#sd-gamma input", String(gamma));
    else if (gamma !== "auto") type("#sd-confidence input", gamma.replace(/^\D*/, ""));
    this.read();
  }

  // Whether the line is about the shown race or the next one, and whether another length is computed from the shown one.
  about(race) {
    const next = !measuredHere(race.begin) || race.onServers;
    this.next.hidden = !next;
    this.node.classList.toggle("next", next);
    this.node.classList.toggle("measures", !whatIfOf(race));
  }

  // While a race runs, there is no run to compute another length from.
  hold(running) {
    this.held = running;
    this.read();
  }

  get isOpen() {
    return document.body.classList.contains(OPEN);
  }

  // `focus`: put the keyboard into the prompt.
  open(open, focus = true) {
    document.body.classList.toggle(OPEN, open);
    this.edit.textContent = open ? "Close" : "Edit";
    this.edit.setAttribute("aria-expanded", String(open));
    if (open && focus) document.querySelector("#sd-prompt textarea")?.focus({ preventScroll: true });
  }
}

const valueOf = (selector) => document.querySelector(/** @type {any} */ (selector))?.value ?? "";

// The draft length of the form: a number, a policy's name, or "" if none can be dragged.
function gammaChosen() {
  const choice = valueOf("#sd-choice input:checked");
  if (choice === "auto") return choice;
  if (choice === "confidence") return `stop below confidence ${valueOf("#sd-confidence input")}`;
  const text = valueOf("#sd-gamma input");
  return /^(\d|1[0-6])$/.test(text) ? Number(text) : "";
}

// What the text must obey: the kind of a grammar, "" for nothing, and its text.
function grammarAsked() {
  return { kind: valueOf("#sd-grammar input:checked"), text: valueOf("#sd-grammar-text textarea") };
}

// Chooses how the draft length is chosen ("choice"), or what the text must obey ("grammar").
function choose(name, value) {
  const field = /** @type {any} */ (document.querySelector(`#sd-${name} input[value="${value}"]`));
  if (!field?.checked) field?.click();
}

// Writes into a field of the form as a person does.
function type(selector, text) {
  const field = /** @type {any} */ (document.querySelector(selector));
  if (!field || field.value === text) return;
  field.value = text;
  for (const event of ["input", "change"]) field.dispatchEvent(new Event(event, { bubbles: true }));
}
