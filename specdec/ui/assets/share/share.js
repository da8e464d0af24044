// The Share menu shares what the open tab shows. For a race: these settings, this run, a file, the code. Nothing here
// starts a run.
import { linkWith, resultsKey } from "../lib/address.js";
import { button, el, save } from "../lib/dom.js";
import { savers } from "../lib/files.js";
import { keepRace } from "./session_state.js";
import { isOwn } from "./card.js";
import { runLink, settingsLink } from "./link.js";
import { offeredBy, onOffer } from "../lib/offered.js";
import { pageOf } from "./web_page.js";
import { Picture } from "./picture.js";
import { LARGEST } from "../race/race.js";
import { askServer, menuPlace } from "../lib/server.js";
import { onTab, tabShown } from "../lib/tabs.js";

// The names of results whose link opens another tab.
const OTHER_RESULTS = { "your-server": "server-bench" };
const NOTHING = "Nothing to share yet. Measure something here or open results; then their link is here.";
const OWN = "The links below open only on this computer. To send a run, take the picture or the web page.";
const OWN_RESULTS = "This link opens only on this computer. To send results, take the file.";
const OWN_TAB = "This link opens only on this computer.";
const OF_SERVERS = "Nothing to share yet. Run a race or a benchmark here; then its link is here.";
const NO_RESULTS = "What this tab shows has no link and no file of its own.";

export class Share {
  #race = null;
  #text = null;

  // `onFile` gets the name and the text of an opened recording.
  constructor(onFile) {
    this.settings = new Copyable("Link to these settings");
    this.run = new Copyable("Link to this run");
    this.runWords = el("p", "sd-hint", "The link has texts and times, no probabilities.");
    this.picture = new Picture();
    this.noPicture = el("p", "sd-hint", "No run is shown.");
    this.save = button("sd-action", "Download this run", () => this.#download());
    this.page = button("sd-action sd-served", "Save as a web page", () => this.#savePage());
    const words = "The web page has every view and needs no server.";
    this.pageWords = el("p", "sd-hint sd-served", words);
    const chooser = el("input", "sd-file");
    Object.assign(chooser, { type: "file", accept: ".jsonl", id: "sd-open" });
    chooser.addEventListener("change", async () => {
      const [file] = chooser.files;
      chooser.value = "";
      if (!file) return;
      this.node.open = false;
      onFile(file.name, file.size > LARGEST ? "" : await file.text(), file.size);
    });
    const open = el("label", "sd-action", "Open a recording");
    open.htmlFor = "sd-open";
    this.code = el("div", "sd-code");
    const summary = el("summary", "sd-shareButton", "Share");
    this.node = el("details", "sd-share", "", [summary, (this.panel = el("div", "sd-sharePanel"))]);
    this.ofForm = served(section("These settings", this.settings.node));
    const links = [...ownWords(OWN), this.ofForm, section("This run", this.run.node, this.runWords)];
    const file = section(
      "File",
      el("div", "sd-actions", "", [this.page, this.save]),
      this.pageWords,
      el("p", "sd-hint", "The run's file has every event, as JSON lines."),
    );
    // What can be sent comes first where the links are of no use to others.
    const sent = el("div", "sd-shareSent", "", isOwn(location.href) ? [file, ...links] : [...links, file]);
    const picture = section("Picture", this.picture.node, this.noPicture);
    const opening = el("div", "sd-shareOpen", "", [chooser, open]);
    this.ofRace = [picture, sent, served(section("Code", this.code)), opening];
    this.#draw();
    this.node.addEventListener("toggle", () => this.#refresh());
    onTab(() => this.#refresh());
    onOffer(() => tabShown() !== "race" && this.#refresh());
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.node.open = false;
      summary.focus();
    });
    menuPlace().then((place) => place.replaceChildren(this.node));
    // A change of the form makes what the menu says out of date.
    for (const act of ["click", "input"])
      document.addEventListener(act, (event) => {
        if (event.isTrusted && !this.node.contains(/** @type {Node} */ (event.target))) this.node.open = false;
      });
  }

  // The shown race, and a function that gives its lines.
  offer(race, text) {
    this.#race = race;
    this.#text = text;
    keepRace(race.begin, text());
    this.#refresh();
  }

  #refresh() {
    this.#draw();
    if (this.node.open && this.#showsRace(tabShown())) this.#fill();
  }

  // The parts of the open tab, while the menu is open.
  #draw() {
    const tab = this.node.open ? tabShown() : "race";
    const parts = this.#showsRace(tab) ? this.ofRace : partsOf(tab);
    this.ofForm.hidden = tab !== "race"; // the other tab with a race has another form
    if (parts[0] === this.panel.firstChild) return;
    this.panel.replaceChildren(...parts);
    this.panel.classList.toggle("ofRace", parts === this.ofRace);
  }

  // Whether the shown race is on this tab.
  #showsRace(tab) {
    return tab === "race" || (tab === "your-server" && Boolean(this.#race?.onServers));
  }

  async #fill() {
    const race = this.#race?.verdict?.figures ? this.#race : null;
    this.save.disabled = this.page.disabled = !race;
    this.picture.show(race);
    this.noPicture.hidden = Boolean(race);
    this.settings.set("");
    this.run.set("", race ? "" : "No run is shown.");
    if (!race) this.code.replaceChildren(el("p", "sd-hint", "Run a race first."));
    this.#showAnswer(race);
    if (!race) return;
    const link = await runLink(race);
    if (race === this.#race) this.run.set(link ?? "", link ? "" : "This run is too long for a link. Use the file.");
  }

  // The server's answer about the form and the run.
  async #showAnswer(race) {
    const { settings, problem, code } = await askServer(race && codeFacts(race));
    this.settings.set(problem ? "" : settingsLink(settings), problem);
    if (code) this.code.replaceChildren(...codeFolds(code));
  }

  #download() {
    save(`${fileName(this.#race)}.jsonl`, this.#text());
  }

  async #savePage() {
    const race = this.#race;
    try {
      save(`${fileName(race)}.html`, await pageOf(race, this.#text()));
    } catch (error) {
      this.pageWords.textContent = `The web page cannot be made. ${error.message}`;
    }
  }
}

function fileName(race) {
  return `specdec-${new Date(race.begin.at * 1000).toISOString().slice(0, 19).replaceAll(":", "-")}`;
}

// That the links below are of no use to others, where that is so. It stands before them, because afterwards is too late.
const ownWords = (words) => (isOwn(location.href) ? [served(el("p", "sd-hint", words))] : []);

// What a tab other than the race has to share.
function partsOf(tab) {
  const key = resultsKey(tab) ?? OTHER_RESULTS[tab];
  const { link, files, code, words } = offeredBy(key);
  const results = link === undefined || link === null ? null : new Copyable("Link to these results");
  if (!results) {
    const address = new Copyable("Link to this tab");
    address.set(linkWith({ tab }));
    const nothing = OTHER_RESULTS[tab] ? OF_SERVERS : NOTHING;
    const words = el("p", "sd-hint", key ? nothing : NO_RESULTS);
    return [section("This tab", words, ...ownWords(OWN_TAB), address.node)];
  }
  results.set(link, words);
  const withFile = Object.keys(files ?? {}).length > 0;
  return [
    section("These results", ...ownWords(withFile ? OWN_RESULTS : OWN_TAB), results.node),
    ...(withFile ? [section("File", savers(files))] : []),
    ...(code ? [section("Code", ...codeFolds(code))] : []),
  ];
}

// The parts of a recording that the code of a run is made from. The server reads no more of it.
function codeFacts(race) {
  const { params, pair, gamma, acceptance, accept_top_k } = race.lanes.get("speculative").started;
  return { settings: race.begin.settings, started: { params, pair, gamma, acceptance, accept_top_k } };
}

// The lines that decode as a run did, in a fold for each tool; or the server's message if there are none.
export function codeFolds({ codes, problem }) {
  if (!codes) return [el("p", "sd-hint", problem)];
  const folds = Object.entries(codes).map(([name, lines]) =>
    el("details", "sd-codeFold", "", [el("summary", "", name), new Copyable(`${name} code`, lines).node]),
  );
  return [el("div", "sd-codeFolds", "", folds)];
}

// A text to copy. It is selected when touched, because copying can fail in frames and without https.
export class Copyable {
  constructor(label, lines = null) {
    this.field = el(lines === null ? "input" : "textarea", "sd-copyText");
    this.field.readOnly = true;
    this.field.setAttribute("aria-label", label);
    this.field.addEventListener("focus", () => this.field.select());
    this.copy = button("sd-action", "Copy", () => this.#copy(), `Copy ${label.toLowerCase()}`);
    this.hint = el("p", "sd-hint");
    this.node = el("div", lines === null ? "sd-copy" : "sd-copy tall", "", [this.field, this.copy, this.hint]);
    if (lines !== null) {
      this.field.rows = Math.min(16, lines.split("\n").length);
      this.set(lines);
    }
  }

  set(text, problem = "") {
    this.field.value = text;
    this.field.placeholder = problem ? "" : "One moment \u2026"; // until the text is there
    this.copy.disabled = !text;
    this.hint.textContent = problem ?? "";
  }

  async #copy() {
    this.field.select();
    const done = await navigator.clipboard?.writeText(this.field.value).then(
      () => true,
      () => false,
    );
    this.copy.textContent = done ? "Copied" : "Selected";
    setTimeout(() => (this.copy.textContent = "Copy"), 2000);
  }
}

// A part that the server fills; a page without one leaves it out.
function served(node) {
  node.classList.add("sd-served");
  return node;
}

function section(title, ...children) {
  return el("section", "", "", [el("h3", "", title), ...children]);
}
