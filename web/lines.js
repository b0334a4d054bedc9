// Lines: host and device memory of each line beside its source, for a run of `stowage run --profile`
// (src/report/line_page.c writes the data).
import { barCell, empty, make } from "./dom.js";
import { sizeText } from "./units.js";

const COLUMNS = [ // of the amounts of a line; error is shown behind "allocated"
  ["Host peak", 0], ["kept", 1], ["allocated", 2], ["GPU peak", 4], ["kept", 5], ["allocated", 6],
];
const ERROR = 3;
const STATES = {
  changed: "The file has changed since the run began: the text may not be what ran.",
  missing: "The text of this file is not there: only files ending in .py are read, when the report is made.",
};

function amountCell(amounts, at, most) {
  const bytes = amounts[at], isPeak = at === 0 || at === 4;
  const cell = make("td", { class: "number" }, bytes === 0 ? "" : isPeak ? barCell(sizeText(bytes), bytes / most) : sizeText(bytes));
  if (at === 2 && amounts[ERROR]) cell.title = `± ${sizeText(amounts[ERROR])} (standard error: host memory is sampled)`;
  return cell;
}

// One table of a file: amounts, line number, text. A row of dots stands for lines that are left out.
function fileTable(file, columns, most, words) {
  const rows = [];
  let last = 0;
  for (const [number, text, name, ...amounts] of file.lines) {
    if (last && number > last + 1) rows.push(make("tr", { class: "gap" }, make("td", { colspan: columns.length + 2 }, "⋯")));
    last = number;
    const cells = columns.map(([, at]) => (amounts.length ? amountCell(amounts, at, most) : make("td", {})));
    const found = words && (text ?? "").toLowerCase().includes(words);
    rows.push(make("tr", { class: `${amounts.length ? "" : "soft"}${found ? " picked" : ""}`, title: name ? `in ${name}` : null }, cells,
      make("td", { class: "number line-number" }, String(number)), make("td", { class: "source" }, make("code", {}, text ?? (name ? `in ${name}` : "")))));
  }
  return make("div", { class: "scroll" }, make("table", { class: "lines" },
    make("caption", {}, make("b", {}, file.file), STATES[file.text] ? ` ${STATES[file.text]}` : null),
    make("thead", {}, make("tr", {}, columns.map(([title]) => make("th", { class: "number", scope: "col" }, title)), make("th", { class: "number", scope: "col" }, "Line"), make("th", { scope: "col" }, "Source"))),
    make("tbody", {}, rows)));
}

export function linesPanel(app) {
  const p = app.active.profile;
  if (!p) return empty("No profile", "stowage run --profile measures the memory of each line.");
  const columns = COLUMNS.filter(([, at]) => at < ERROR || p.device);
  let most = 1;
  for (const file of p.files) for (const [, , , ...amounts] of file.lines) most = Math.max(most, amounts[0] ?? 0, amounts[4] ?? 0);
  const notes = [
    `Peak ${sizeText(p.hostPeak)} of host memory${p.device ? `, ${sizeText(p.devicePeak)} of GPU memory` : ""}${p.processes > 1 ? `; sums of ${p.processes} processes` : ""}.`,
    "Peak: held by the line when the process held most. Kept: held at the end.",
    `Host memory is sampled every ${sizeText(p.period)}; point at an allocated figure for its error.${p.device ? " GPU memory is exact." : ""}`,
    p.other.length ? `No line of the program (start, native threads): ${sizeText(p.other[0])} of host memory at the peak${p.device ? `, ${sizeText(p.other[4])} of GPU memory` : ""}.` : "",
    p.leftOut ? `${p.leftOut} lines with less are left out.` : "",
    p.dropped ? `${p.dropped} samples are left out: too many lines allocated.` : "",
  ].filter(Boolean);
  const element = make("div", {}, make("p", { class: "soft" }, notes.join(" ")),
    p.files.length ? p.files.map((file) => fileTable(file, columns, most, app.words)) : empty("No lines", "No line of the program allocated as much as one sample."));
  element.csv = () => [["file", "line", "function", "source", "host_peak_bytes", "host_kept_bytes", "host_allocated_bytes", "host_allocated_error_bytes", "gpu_peak_bytes", "gpu_kept_bytes", "gpu_allocated_bytes"],
    ...p.files.flatMap((file) => file.lines.filter((line) => line.length > 2).map(([number, text, name, ...amounts]) => [file.file, number, name, text ?? "", ...amounts]))];
  return element;
}
