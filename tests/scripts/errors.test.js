// Errors go when their cause may be gone: one rule for all places of the page.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { mended, pairChanged, watchErrors } from "../../specdec/ui/assets/lib/errors.js";
import { click, one, pass, recorded, send, show, state, textOf, texts, words } from "./page.js";

await show(recorded());

const parts = document.createElement("div");
parts.innerHTML = `
  <div role="tabpanel"><div id="sd-gamma-status"></div><div id="sd-problems"></div>
    <input id="tokens" /><span class="sd-of-gamma"><input id="length" /></span>
    <button class="sd-go" id="start"></button><button class="label-wrap" id="fold"></button>
    <div id="sd-bench-compare"><div id="sd-compare"></div><div class="sd-files"><button id="remove"></button></div></div>
  </div>
  <div id="sd-change"><div id="sd-report"></div><input id="target" /></div>`;
document.body.append(parts);

// Components of Gradio: what they show is their value.
const places = Object.fromEntries(
  ["sd-gamma-status", "sd-problems", "sd-compare", "sd-report"].map((id) => {
    const element = one(`#${id}`);
    const props = {
      get value() {
        return element.innerHTML;
      },
      set value(html) {
        element.innerHTML = html;
      },
    };
    watchErrors(element, props);
    return [id, props];
  }),
);
const error = (text, cause = "") => `<p class="sd-error"${cause && ` data-of="${cause}"`}>${text}</p>`;

beforeEach(() => {
  places["sd-gamma-status"].value = error("a draw &lt;b&gt;") + error("a link", "address");
  places["sd-problems"].value = `${error("a length", "gamma")}${error("another")}<p class="sd-note">A note.</p>`;
  places["sd-compare"].value = error("a file");
  places["sd-report"].value = `<ul class="sd-findings"><li>no folder</li></ul>`;
});
const shown = () => Object.fromEntries(Object.keys(places).map((id) => [id, texts(`#${id} > *`).join()]));
const ALL = {
  "sd-gamma-status": "a draw <b>,a link",
  "sd-problems": "a length,another,A note.",
  "sd-compare": "a file",
  "sd-report": "no folder",
};

test("a field mends the errors of its part, and only it those that name its setting", () => {
  send("#tokens", "input");
  const rest = { ...ALL, "sd-gamma-status": "a link", "sd-problems": "a length,A note." };
  assert.deepEqual(shown(), rest);
  send("#length", "input");
  assert.deepEqual(shown(), { ...rest, "sd-problems": "A note." });
  send("#target", "input");
  assert.equal(shown()["sd-report"], "");
});

test("an act clears its part, and a fold, which shows the field to mend, nothing", () => {
  click("#fold");
  send("#tokens", "change"); // Chromium sends it when a field loses the focus
  assert.deepEqual(shown(), ALL);
  click("#remove");
  assert.deepEqual(shown(), { ...ALL, "sd-compare": "" });
  click("#start");
  assert.deepEqual(shown(), { ...ALL, "sd-compare": "", "sd-gamma-status": "", "sd-problems": "A note." });
});

test("the race's prompt mends errors of the draft length's tab; the address and another pair mend theirs", () => {
  send("#sd-prompt textarea", "input");
  assert.deepEqual(shown(), { ...ALL, "sd-gamma-status": "a link" });
  pairChanged();
  assert.deepEqual(shown(), { ...ALL, "sd-gamma-status": "a link", "sd-problems": "A note.", "sd-compare": "" });
  mended("address");
  assert.equal(shown()["sd-gamma-status"], "");
});

test("a refused race is said until the form changes or another race begins", async () => {
  const refused = (number) =>
    textOf([
      { event: "begin", number },
      { event: "error", message: "Seed is soon." },
    ]);
  const said = () => (one("#sd-said .sd-error").hidden ? "" : words("#sd-said .sd-error"));
  state.begin();
  await show(refused(2001));
  assert.equal(said(), "Seed is soon.");
  send("#sd-tokens input", "input");
  assert.equal(said(), "");
  await show(refused(2002));
  assert.equal(said(), "Seed is soon.");
  click("#sd-run");
  assert.equal(said(), "");
  await pass();
});
