// The shown race, for everything on the page that refers to it.
const news = new EventTarget();
let race = null;

export const raceShown = () => race;

// A race whose verdict is shown; null while another one runs.
export function showRace(found) {
  race = found;
  news.dispatchEvent(new Event("race"));
}

// Calls back now, if a race is shown, and whenever another one is.
export function onRace(call) {
  news.addEventListener("race", () => call(race));
  if (race) call(race);
}
