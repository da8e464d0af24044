// The place of a race that a person points at or has chosen. All views show the same place.

/** @typedef {{ lane: string, round: number, place?: number | null, row?: number | null }} At
 * A round of a lane; `place` is a token's place in the lane's text, `row` a guess's place in the round's draft. */

export class Focus {
  #views = [];
  #shown = "";

  // `view.light(at, byKey)` is called with the place that is pointed at, or null. `view.choose(at, anchor)`, if a view has
  // it, is called with the chosen round and the element at which it was chosen, if any.
  add(view) {
    this.#views.push(view);
  }

  /** @param {At | null} at */
  point(at, byKey = false) {
    const name = JSON.stringify(at);
    if (name === this.#shown && !byKey) return;
    this.#shown = name;
    for (const view of this.#views) view.light(at, byKey);
  }

  /** @param {At} at */
  choose(at, anchor) {
    for (const view of this.#views) view.choose?.(at, anchor);
  }
}
