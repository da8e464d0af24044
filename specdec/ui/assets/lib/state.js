// The object that the page's listeners call and that tests wait for. It exists before the view.
export const state = (window.specdec ??= {
  mounted: false,
  begun: 0, // races whose lines have come
  rounds: 0,
  lanesStarted: 0,
  lanesFinished: 0,
  verdicts: 0, // 1 when a greeting is shown, one more for each race after it
  errors: 0,
  origin: "", // of the shown race
  running: false,
  replaying: false,
  pair: "", // that the server uses, as far as the page knows
  begin() {},
  end() {},
  halt() {},
  loaded(pair) {
    this.pair = pair;
  },
  share() {},
  run() {},
  codes() {},
  shown() {},
  open() {},
  recordings: {}, // name -> address of those that this page's server has
  recording() {},
  example: [], // the values of the form's fields for the chosen one
  asked() {},
  go() {},
  rest() {},
});
