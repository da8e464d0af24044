// Figures beside their ratio: a reader who divides what is shown must find the ratio that is shown.
const MOST = 5; // decimal places

// The decimal places of `values`, at least `least`. `ratios` says which of them are compared, and with how many decimal
// places their ratio is shown: [above, below, places], by the places of both in `values`.
export function placesTogether(values, ratios, least = 0) {
  for (let places = least; places < MOST; places++) {
    const shown = values.map((value) => Number(value.toFixed(places)));
    if (
      ratios.every(([above, below, digits]) => same(values[above] / values[below], shown[above] / shown[below], digits))
    )
      return places;
  }
  return MOST;
}

const same = (one, other, digits) => one.toFixed(digits) === other.toFixed(digits);

// The ratios of a race's lanes, from plain to speculative, for `placesTogether`: each lane with the one before it as a
// share is shown, and the last with the first as the speed-up is. `factor` is that one as a text: "7.8x". None is
// compared where it is uncertain (`about`): further digits would look like certainty.
export function ratiosOf(count, factor, about) {
  if (about) return [];
  const steps = Array.from({ length: count - 1 }, (_, at) => [at + 1, at, 2]);
  const digits = /\.(\d+)/.exec(factor ?? "")?.[1].length ?? 0;
  return count > 2 ? [...steps, [count - 1, 0, digits]] : [[count - 1, 0, digits]];
}
