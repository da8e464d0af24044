// A page of recorded races without a server: the views of the served page, in a frame that needs no Gradio.
import { mount as mountHow } from "../explain/how.js";
import { fromBase64, inAddress, linkWith, tabInAddress } from "../lib/address.js";
import { defineFigures, figureName } from "../lib/definitions.js";
import { placesTogether, ratiosOf } from "../lib/digits.js";
import { dayOf, el, together } from "../lib/dom.js";
import { SHARES } from "../lib/figures.js";
import { inflate } from "../lib/inflate.js";
import { defineLanes, labelOf } from "../lib/lanes.js";
import { standAlone } from "../lib/server.js";
import { state } from "../lib/state.js";
import { tabOpened, walkTabs } from "../lib/tabs.js";
import { followTheme } from "../lib/theme.js";
import { mount } from "../live.js";
import { onRace } from "../race/current_race.js";
import { LARGEST } from "../race/race.js";

const TABS = { race: "Race", "how-it-works": "How it works" };
const LEDE = [
  "A small model ",
  el("span", "", "(the draft) "),
  "guesses, a large one ",
  el("span", "", "(the target) "),
  "checks all guesses at once. Same result, fewer waits.",
];

const jsonIn = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");
const recordings = jsonIn("sd-recordings");
const isGrey = ({ about, synthetic }) => Boolean(about || synthetic);
const packedOf = (name) => recordings.find((one) => one.name === name)?.packed;

const place = (tag, id, className = "", children = []) => {
  const node = el(tag, className, "", children);
  node.id = id;
  return node;
};

// The places that the views fill, by the names that they have on the served page.
function frame() {
  const pair = el("span");
  const title = el("div", "", "", [el("h1", "", "specdec"), el("p", "sd-pair", "", [pair])]);
  const header = place("div", "sd-header", "", [el("header", "sd-head", "", [title, el("p", "sd-lede", "", LEDE)])]);
  const menu = place("div", "sd-share");
  const gallery = el("section", "sd-front", "", [
    el("h2", "", "Recorded races"),
    el("p", "", "Each replays here, round by round, from the times that were measured on the machine it names."),
    ...(recordings.some(isGrey) ? [el("p", "", "A grey speed-up is uncertain; its card says why.")] : []),
    el("nav", "sd-gallery", "", recordings.length > 1 ? recordings.map(cardOf) : []),
  ]);
  const back = el("a", "sd-back", "\u2190 All recordings");
  back.href = "#";
  const mark = el("span", "sd-cardMark sd-frontMark");
  const panels = {
    race: el("div", "sd-panel", "", [
      place("div", "sd-line", "", [place("div", "sd-summary", "", [el("div", "sd-linePlace")])]),
      fields(),
      place("div", "sd-live", "sd-live"),
    ]),
    "how-it-works": el("div", "sd-panel", "", [place("div", "sd-how")]),
  };
  const buttons = Object.entries(TABS).map(([key, name]) => tabOf(key, name, panels[key]));
  const list = el("div", "sd-tabList", "", buttons);
  list.setAttribute("role", "tablist");
  const view = place("div", "sd-tabs", "", [list, ...Object.values(panels)]);
  walkTabs(list);
  const said = place("div", "sd-said", "", [el("div", "sd-saidPlace")]);
  const main = el("main", "main", "", [place("div", "sd-top", "", [header, menu]), said, gallery, back, mark, view]);
  document.body.append(el("div", "gradio-container", "", [main]));
  onRace((race) => race && (pair.textContent = race.begin.pair));
  return { menu, back, mark, panels, buttons };
}

// The fields that the line of the form reads. Nobody sees them: a recording's settings do not change.
function fields() {
  const field = (id, tag = "input") => {
    const input = el(tag);
    input.tabIndex = -1;
    return place("div", id, "", [input]);
  };
  const ids = ["sd-tokens", "sd-temperature", "sd-gamma", "sd-confidence"];
  const choices = ["fixed", "auto", "confidence"].map((value) =>
    Object.assign(el("input"), { type: "radio", name: "choice", value, tabIndex: -1 }),
  );
  const node = place("div", "sd-ask", "", [
    field("sd-prompt", "textarea"),
    ...ids.map((id) => field(id)),
    place("div", "sd-choice", "", choices),
  ]);
  node.hidden = true;
  return node;
}

function tabOf(key, name, panel) {
  const node = el("button", "", name);
  Object.assign(node, { type: "button", id: `sd-tab-${key}` });
  node.setAttribute("role", "tab");
  node.dataset.tabId = key;
  panel.id = `sd-panel-${key}`;
  panel.setAttribute("role", "tabpanel");
  panel.setAttribute("aria-labelledby", node.id);
  node.setAttribute("aria-controls", panel.id);
  return node;
}

// A recording before it is opened: what it is, how fast it was and compared with what, where and when. Each card has the
// same parts, also empty ones, so that those of neighbours stand on the same lines.
function cardOf(card) {
  const { title, pair, factor, about, baseline, synthetic, doubts, gain, engine, speeds } = card;
  const runs = card.runs === 1 ? "1 run" : `${card.runs} runs`;
  const node = el("a", "sd-recordingCard", "", [
    el("span", "sd-cardTitle", "", [
      el("strong", "", title || pair),
      ...(synthetic ? [el("span", "sd-cardMark", synthetic)] : []),
    ]),
    el("span", "sd-cardFrom", title ? pair : ""),
    el("span", `sd-cardFigures${isGrey(card) ? " about" : ""}`, "", [
      figureOf(
        [...(about ? [el("small", "", "about ")] : []), factor ?? "\u2013"],
        factor ? `the speed of ${baseline}` : "",
      ),
      ...SHARES.flatMap((share) =>
        card.figures.filter(({ name }) => name === share).map((figure) => figureOf([figure.value], figureName(figure))),
      ),
    ]),
    el("span", "sd-cardDoubt", doubts.join(" ")),
    gain && speeds?.generate && speeds?.speculative
      ? barsOf({ generate: 1, "speculative:0": engine, speculative: gain }, speeds, factor, about)
      : el("span", "", card.sentence),
    el("span", "sd-cardEnd", "", [
      el("span", "sd-cardFrom", "", together([card.machine, dayOf(card.at), runs].join(" \u00b7 "))),
      el("span", "sd-cardOpen", "Watch it \u203a"),
    ]),
  ]);
  node.href = linkWith({ recording: card.name }).replace(/^[^#]*/, "");
  return node;
}

const figureOf = (parts, words) => el("span", "sd-cardFigure", "", [el("b", "", "", parts), el("small", "", words)]);

// The speeds of a recording's lanes, to scale. `gains`: how many times as fast as plain `generate` each lane is.
function barsOf(gains, speeds, factor, about) {
  const lanes = Object.keys(gains).filter((lane) => gains[lane] && speeds[lane]);
  const fastest = Math.max(...lanes.map((lane) => gains[lane]));
  const measured = lanes.map((lane) => speeds[lane]);
  const places = placesTogether(measured, ratiosOf(lanes.length, factor, about));
  const rows = lanes.map((lane) => {
    const bar = el("span", `sd-cardBar ${lane}`);
    bar.style.width = `${(100 * gains[lane]) / fastest}%`;
    return el("span", "sd-cardRow", "", [
      el("span", "", labelOf(lane)),
      el("span", "sd-cardTrack", "", [bar]),
      el("span", "sd-cardRate", `${speeds[lane].toFixed(places)}\u00a0tokens/s`),
    ]);
  });
  return el("span", "sd-cardBars", "", rows);
}

async function start() {
  followTheme();
  const [lanes, definitions] = [jsonIn("sd-lanes"), jsonIn("sd-definitions")];
  defineLanes(lanes);
  defineFigures(definitions);
  const { menu, back, mark, panels, buttons } = frame();
  const openTab = () => {
    const name = tabInAddress() in TABS ? tabInAddress() : "race";
    for (const button of buttons) {
      const open = button.dataset.tabId === name;
      button.setAttribute("aria-selected", String(open));
      button.tabIndex = open ? 0 : -1;
      panels[button.dataset.tabId].hidden = !open;
    }
    tabOpened(name);
  };
  for (const button of buttons)
    button.addEventListener("click", () => {
      tabOpened(button.dataset.tabId); // names it in the address
      openTab();
    });
  standAlone(menu, openTab);
  openTab();
  await mount(
    document.getElementById("sd-live"),
    {},
    () => {},
    lanes,
    definitions,
    () => {},
  );
  mountHow(document.getElementById("sd-how"));

  /** @type {any} */ (document.querySelector(".sd-linePrompt")).disabled = true; // a recording's prompt does not change
  const several = recordings.length > 1;
  let shown = null; // the name of the open recording
  let other = false; // whether a file or the run of a link is shown
  const route = async () => {
    const asked = inAddress("recording");
    const name = packedOf(asked) || several ? asked : recordings[0]?.name;
    other = Boolean(inAddress("run")) || (other && !packedOf(asked));
    const front = several && !other && !packedOf(name);
    document.body.classList.toggle("sd-atFront", front);
    back.hidden = front || !several;
    // A recording without real weights is marked as such above its figures too.
    mark.textContent = (!front && !other && recordings.find((one) => one.name === name)?.synthetic) || "";
    if (front || other) return void (shown = null);
    if (name === shown || !packedOf(name)) return;
    shown = name;
    const text = new TextDecoder().decode(await inflate(fromBase64(packedOf(name)), "gzip", LARGEST));
    if (name === shown) state.open(text, "gallery");
  };
  window.addEventListener("hashchange", route);
  back.addEventListener("click", (event) => {
    event.preventDefault();
    other = false;
    if (location.hash) location.hash = "";
    else route();
  });
  // A file that is opened, or a link, is no recording of the gallery.
  onRace((race) => {
    if (!race || race.begin.origin === "gallery") return;
    other = true;
    route();
  });
  await route();
}

start();
