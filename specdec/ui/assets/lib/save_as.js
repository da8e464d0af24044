// Saves a chart as PNG or SVG and a table as CSV, as they stand on the page. One listener answers all their buttons.
import { fromBase64 } from "./address.js";
import { colourOf, save } from "./dom.js";

// The colours of a chart's marks as they are sent. The style has those of each theme.
export const MARKS = { blue: "#3a7fd0", grey: "#7b8494", orange: "#c2762a", teal: "#4a948e" };
const SHARP = 2; // pixels of a PNG for each pixel of the page

export function answerSaves() {
  document.addEventListener("click", (event) => {
    const chart = event.target.closest?.(".sd-saveChart button");
    if (chart) saveChart(chart);
    const table = event.target.closest?.(".sd-saveTable")?.closest("table");
    if (table) save(`specdec-${nameOf(table)}.csv`, csvOf(table));
  });
}

async function saveChart(button) {
  const place = button.closest(".block.sd-saveChart").previousElementSibling;
  const drawn = place?.querySelector(".js-plotly-plot");
  if (!drawn) return;
  const { width, height } = drawn.getBoundingClientRect();
  const format = button.value;
  const page = getComputedStyle(document.body).backgroundColor; // else it would be transparent, in either theme
  const colour = getComputedStyle(drawn.querySelector("text")).fill;
  const grid = getComputedStyle(drawn.querySelector(".gridlayer path") ?? drawn).stroke;
  const axes = Object.entries(drawn.layout).filter(([name]) => /^[xy]axis/.test(name));
  const notes = (drawn.layout.annotations ?? []).map((note) => ({
    ...note,
    text: inColour(note.text),
    ...(note.bgcolor ? { bgcolor: page } : {}),
  }));
  const layout = {
    ...inTheme(drawn.layout),
    annotations: inTheme(notes),
    ...Object.fromEntries(axes.map(([name, axis]) => [name, { ...axis, gridcolor: grid }])),
    paper_bgcolor: page,
    font: { ...drawn.layout.font, color: colour },
  };
  const image = await window.Plotly.toImage(
    { data: inTheme(drawn.data), layout },
    { format, width: Math.round(width), height: Math.round(height), scale: SHARP },
  );
  const [, content] = image.split(/,(.*)/s);
  const bytes = format === "svg" ? decodeURIComponent(content) : fromBase64(content);
  save(`specdec-${place.id.replace(/^sd-/, "")}.${format}`, bytes);
}

// What a chart is drawn from, with the colours of its marks as they are in this theme.
function inTheme(parts) {
  const colourNow = colourOf(document.body);
  let text = JSON.stringify(parts);
  for (const [name, colour] of Object.entries(MARKS)) text = text.replaceAll(colour, colourNow(`chart-${name}`));
  const [red, green, blue] = MARKS.blue.match(/\w\w/g).map((pair) => parseInt(pair, 16));
  const region = new RegExp(`rgba\\(${red}, ${green}, ${blue}, [\\d.]+\\)`, "g");
  const alpha = Math.round(255 * Number(colourNow("chart-pays"))).toString(16);
  return JSON.parse(text.replaceAll(region, `${colourNow("chart-blue")}${alpha}`));
}

// A text with the page's colours as they are in this theme, because a file has no style of the page.
const inColour = (text) =>
  text.replaceAll(/var\((--[\w-]+)\)/g, (_, name) => getComputedStyle(document.body).getPropertyValue(name).trim());

// The cells of a table, those that a narrow screen leaves out too.
function csvOf(table) {
  const cell = (node) => `"${node.textContent.trim().replaceAll('"', '""')}"`;
  return [...table.rows].map((row) => [...row.cells].map(cell).join(",") + "\r\n").join("");
}

// The beginning of a table's caption as the name of a file.
function nameOf(table) {
  const words = (table.caption?.firstChild?.textContent ?? "").toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return words.slice(0, 5).join("-") || "table";
}
