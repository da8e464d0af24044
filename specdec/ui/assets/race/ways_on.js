// The ways from a race to what explains it: the tab How it works, with this race's rounds.
import { button, el, nextFrame, reducedMotion } from "../lib/dom.js";
import { showTab } from "../lib/tabs.js";

const WAYS = { "What happens in a round?": ".sd-howHead", "Be the draft": ".sd-game" };
const PATIENCE = 10_000; // milliseconds for the tab to be drawn

export const waysOn = () =>
  el(
    "p",
    "sd-waysOn",
    "",
    Object.entries(WAYS).map(([words, place]) => button("sd-asLink", words, () => go(place))),
  );

function go(place) {
  showTab("how-it-works");
  const until = performance.now() + PATIENCE;
  const look = () => {
    const node = document.querySelector(/** @type {any} */ (place));
    if (node?.offsetParent) node.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
    else if (performance.now() < until) nextFrame(look);
  };
  look();
}
