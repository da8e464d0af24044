// What the tabs that measure have to share, for the Share menu, under the names that addresses have for results.
const news = new EventTarget();
const offered = new Map();

// `parts`: `link`, an address, "" if the results are too long for one, null without results; `files`, texts by name;
// `code`, an answer of the server.
export function offer(key, parts) {
  offered.set(key, { ...offered.get(key), ...parts });
  news.dispatchEvent(new Event("offer"));
}

export const offeredBy = (key) => offered.get(key) ?? {};

// Calls back whenever there is something else to share.
export const onOffer = (call) => news.addEventListener("offer", call);
