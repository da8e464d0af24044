// Tabs and the history, with Gradio's reports at the wrong moment.
import assert from "node:assert/strict";
import { test } from "node:test";
import { click, pass } from "./page.js";
import { tabOpened, tabShown } from "../../specdec/ui/assets/lib/tabs.js";

const { history, location } = window;
async function back() {
  history.back();
  await pass(100); // jsdom goes back in a timer
}
const at = () => [location.hash, history.length];

test("a tab that somebody chose is one entry; a late report after Back and the first report are none", async () => {
  location.hash = "tab=lossless";
  await pass();
  const length = history.length;
  click("#sd-run"); // before Gradio has reported the tab with which the page opens
  tabOpened("race");
  assert.deepEqual(at(), ["#tab=lossless", length]);
  tabOpened("lossless");
  click("#sd-run");
  tabOpened("benchmark");
  assert.deepEqual(at(), ["#tab=benchmark", length + 1]);
  tabOpened("best-gamma");
  assert.deepEqual(at(), ["#tab=best-gamma", length + 2]);
  await back();
  tabOpened("best-gamma");
  assert.deepEqual(at(), ["#tab=benchmark", length + 2]);
  tabOpened("benchmark");
  assert.equal(tabShown(), "benchmark");
});

test("results in the address mean their tab, and another tab is named beside them", async () => {
  location.hash = "sweep=abc";
  await pass();
  tabOpened("best-gamma");
  assert.equal(location.hash, "#sweep=abc");
  click("#sd-run");
  tabOpened("race");
  assert.equal(location.hash, "#sweep=abc&tab=race");
  tabOpened("best-gamma");
  assert.equal(location.hash, "#sweep=abc");
});
