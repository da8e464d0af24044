// Follows the theme of the system on a page without a server, as the served page does.
export function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.body.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", follow);
  follow();
}
