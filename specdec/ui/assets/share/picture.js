// The Picture part of the Share menu: the card of the shown race, to save or copy.
import { pageAddress } from "../lib/address.js";
import { cardOf, drawCard, METHOD } from "./card.js";
import { button, el, save, together } from "../lib/dom.js";

export class Picture {
  constructor() {
    this.canvas = el("canvas");
    this.canvas.setAttribute("role", "img");
    this.copy = button("sd-action", "Copy picture", () => this.#copy());
    this.copy.hidden = !navigator.clipboard?.write || !window.ClipboardItem; // missing on plain http and in some frames
    const download = button("sd-action", "Download picture", async () => save("specdec.png", await this.#png()));
    this.words = el("p", "sd-pictureWords"); // on a phone, where the picture is too small to read
    const actions = el("div", "sd-actions", "", [download, this.copy]);
    this.node = el("div", "sd-picture", "", [this.words, this.canvas, actions]);
    this.show(null);
  }

  // The card of a race. Without a race there is no picture.
  show(race) {
    this.node.hidden = !race;
    if (!race) return;
    const card = cardOf(race, pageAddress());
    this.canvas.setAttribute("aria-label", card.sentence);
    const words = [
      el("strong", card.look, card.factor),
      el("span", "", "", together([card.sentence, card.doubt].filter(Boolean).join(" "))),
      el("span", "", "", together(`${METHOD} ${card.origin.join(" \u00b7 ")}`)),
    ];
    this.words.replaceChildren(...words);
    drawCard(this.canvas, card, getComputedStyle(document.body).fontFamily);
  }

  #png() {
    return new Promise((resolve) => this.canvas.toBlob(resolve, "image/png"));
  }

  async #copy() {
    const done = await navigator.clipboard.write([new ClipboardItem({ "image/png": this.#png() })]).then(
      () => true,
      () => false,
    );
    this.copy.textContent = done ? "Copied" : "Copying failed; use Download";
    setTimeout(() => (this.copy.textContent = "Copy picture"), 2000);
  }
}
