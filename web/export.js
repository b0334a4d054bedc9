// Export: the charts as a PNG and tables as CSV, made in the page and saved by the browser.
import { make } from "./dom.js";
import { seriesColour, theme } from "./theme.js";
import { sizeText } from "./units.js";

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

export function exportName(app, what, ending) {
  const stem = app.runs[0].file.replace(/\.(pickle|stow|csv|gz|zst)(?=\.|$)/g, "").replace(/[^A-Za-z0-9._-]+/g, "_") || "report";
  return `${stem}-${what}.${ending}`;
}

// Names come from traces: a spreadsheet must not run one that looks like a formula.
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvText(rows) {
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

export function saveCsv(app, what, rows) {
  app.exported = csvText(rows);
  save(new Blob([app.exported], { type: "text/csv" }), exportName(app, what, "csv"));
}

// What the chart of the active run shows: a row for each column, at its highest moment; zoomed in, a
// row for each event. Host memory alone: its samples.
export function chartRows(app) {
  const run = app.active;
  if (app.hostOnly) return [["time_ns", "host_bytes"], ...Array.from(run.host.times, (time, i) => [time, run.host.bytes[i]])];
  const chart = app.chartOf(run), labels = app.series.labels;
  const rows = [["event", "time_ns", "live_bytes", "reserved_bytes", ...(run.host ? ["host_bytes"] : []), ...labels.map((l) => (l.place ? `${l.name} ${l.place}` : l.name))]];
  const add = (tick) => {
    const by = run.seriesAt(tick), time = run.times[tick] ?? 0;
    rows.push([tick, time, run.liveAt(tick), run.reservedKnown ? run.reservedAt(tick) : NaN, ...(run.host ? [run.hostAt(time)] : []), ...labels.map((_, s) => by[s])]);
  };
  if (chart.single || !chart.cols) {
    const [from, to] = chart.ticksShown ?? [0, run.ticks];
    for (let tick = Math.max(0, Math.ceil(from)); tick < Math.min(to, run.ticks); tick++) add(tick);
  } else {
    let last = -1;
    for (const tick of chart.cols.mostTick) if (tick > last) add(last = tick);
  }
  return rows;
}

// The charts as they are on the screen, with their titles and the legend of the chosen moment.
export function chartImage(app) {
  const ratio = devicePixelRatio || 1, pad = 16, line = 18, names = theme.names;
  const pictures = app.charts.map((chart) => ({ title: app.nameOf(chart.run), parts: [chart.canvas.element, chart.host?.element].filter((e) => e && e.clientHeight > 0) }));
  const width = Math.max(320, ...pictures.flatMap((p) => p.parts.map((e) => e.clientWidth))) + 2 * pad;
  const now = app.active.seriesAt(app.active.chosen), order = [...now.keys()].filter((s) => now[s] > 0 && s < app.series.labels.length).sort((a, b) => now[b] - now[a]);
  const height = pictures.reduce((sum, p) => sum + line + 6 + p.parts.reduce((h, e) => h + e.clientHeight, 0), 2 * pad) + order.length * line;
  const canvas = make("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) }), c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  c.fillStyle = names.card;
  c.fillRect(0, 0, width, height);
  c.textBaseline = "middle";
  let y = pad;
  for (const { title, parts } of pictures) {
    c.fillStyle = names.ink;
    c.font = "600 13px system-ui, sans-serif";
    c.fillText(title, pad, y + line / 2);
    y += line + 6;
    for (const part of parts) {
      c.drawImage(part, pad, y, part.clientWidth, part.clientHeight);
      y += part.clientHeight;
    }
  }
  c.font = "12px system-ui, sans-serif";
  for (const s of order) {
    const label = app.series.labels[s];
    c.fillStyle = seriesColour(s, app.series.labels);
    c.fillRect(pad, y + 3, 11, 11);
    c.fillStyle = names.ink;
    c.fillText(`${sizeText(now[s])}   ${label.name}  ${label.place}`, pad + 18, y + line / 2, width - 2 * pad - 20);
    y += line;
  }
  return canvas;
}

export function savePng(app) {
  chartImage(app).toBlob((blob) => { app.exportedBytes = blob.size; save(blob, exportName(app, "memory", "png")); }, "image/png");
}
