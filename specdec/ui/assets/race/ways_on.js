// The ways from a race to what explains it: the tab How it works, with this race's rounds.
import { button, el, reducedMotion } from "../lib/dom.js";
import { showTab } from "../lib/tabs.js";

const WAYS = { "What happens in a round?": ".sd-howHead", "Be the draft": ".sd-game" };
const DRAWN = 150; // milliseconds until the tab is drawn

export const waysOn = () =>
  el(
    "p",
    "sd-waysOn",
    "",
    Object.entries(WAYS).map(([words, place]) => button("sd-asLink", words, () => go(place))),
  );

function go(place) {
  showTab("how-it-works");
  setTimeout(() => {
    const node = document.querySelector(/** @type {any} */ (place));
    node?.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth", block: "start" });
  }, DRAWN);
}
