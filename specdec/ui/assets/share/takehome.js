// The code for the fastest draft length of a sweep, from one JSON value: { gamma, codes } or { problem }.
import { el, narrow } from "../lib/dom.js";
import { codeFolds } from "./share.js";

export function mount(element, props, watch) {
  const update = () => {
    const answer = props.value ? JSON.parse(props.value) : null;
    const words = `This code uses draft length \u03b3 ${answer?.gamma}, the fastest that was measured here.`;
    element.replaceChildren(...(answer ? [el("p", "sd-hint", words), ...codeFolds(answer)] : []));
    const first = element.querySelector("details");
    if (first) first.open = !narrow();
  };
  watch("value", update);
  update();
}
