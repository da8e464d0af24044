// Lets Gradio's frontend build the page in less time; launch.py puts it into Gradio's HTML, below the config. While the
// page loads, the frontend reads every listener for every component, twice. Svelte makes each of these reads slow to
// notice a change of the config, which never changes. It does so to plain arrays and objects only.
{
  class Fixed extends Array {}
  const { components = [], dependencies = [], page = {} } = window.gradio_config;
  for (const list of [components, dependencies]) Object.setPrototypeOf(list, Fixed.prototype);
  for (const { layout } of Object.values(page)) Object.setPrototypeOf(layout, {});
  // What follows another listener has no component, and the frontend would search the whole page for it.
  for (const one of dependencies) one.targets = one.targets.filter(([id]) => id !== null);
}
