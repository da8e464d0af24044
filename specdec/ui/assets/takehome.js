// The best draft length of a sweep as lines to take home, from one JSON value: { settings, started }.
import { el } from "./dom.js";
import { codeFolds } from "./share.js";

export function mount(element, props, watch) {
  const update = () => {
    const { settings, started } = props.value ? JSON.parse(props.value) : {};
    const hint = el(
      "p",
      "sd-hint",
      `With draft length \u03b3 ${started?.gamma}, the best fixed length that was measured here.`,
    );
    element.replaceChildren(...(started ? [hint, ...codeFolds(settings, started)] : []));
  };
  watch("value", update);
  update();
}
