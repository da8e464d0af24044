// What the page's listeners call and what tests wait on: one object, made before the view is there.
export const state = (window.specdec ??= {
  mounted: false,
  begun: 0, // races whose lines came
  rounds: 0,
  lanesStarted: 0,
  lanesFinished: 0,
  verdicts: 0, // 1 once a greeting is on show, one more for each race after it
  errors: 0,
  origin: "", // of the race on show
  running: false,
  replaying: false,
  pair: "", // that the server works with, as far as the page was told
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
  asked() {},
  go() {},
  rest() {},
});
