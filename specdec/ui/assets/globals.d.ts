// What the page's scripts find in the browser beyond the standard types.

interface Window {
  specdec: any; // what tests wait on and what the page's buttons call; made in live.js
  Plotly: any;
  gradio_config: any;
}

// The page looks for HTML elements only.
interface ParentNode {
  querySelector<E extends HTMLElement = HTMLElement>(selectors: string): E | null;
  querySelectorAll<E extends HTMLElement = HTMLElement>(selectors: string): NodeListOf<E>;
}

// What the pointer meets on the page are elements.
interface EventTarget {
  closest?(selectors: string): HTMLElement | null;
}
