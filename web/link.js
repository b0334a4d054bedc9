// Link: the state of the page as the fragment of its address, so that a link reopens the same view.
//
//   #tab=holders&run=1&at=2345&from=10&to=400&by=tag&axis=time
//
// `at` is an event; `from` and `to` are what the active chart shows, in events. A value that does not fit
// this report is ignored.

export function writeLink(app) {
  const words = [["tab", app.panel]], run = app.active, chart = app.chartOf(run);
  if (app.runs.length > 1) words.push(["run", app.runs.indexOf(run)]);
  words.push(["at", run.chosen]);
  const [a, b] = chart.window;
  if (b - a < chart.extent * 0.999) words.push(["from", Math.floor(chart.tickAt(a))], ["to", Math.ceil(chart.tickAt(b))]);
  if (app.by !== run.groupings()[0]) words.push(["by", app.by]);
  if (app.axis !== app.firstAxis) words.push(["axis", app.axis]);
  if (app.picked?.run === run) words.push(["allocation", app.picked.life]);
  const text = "#" + words.map(([key, value]) => `${key}=${value}`).join("&");
  if (text === location.hash) return;
  try { history.replaceState(null, "", text); } catch { /* a frame of a notebook may not change its address */ }
}

export function readLink(app, text) {
  const words = new Map(text.replace(/^#/, "").split("&").map((word) => word.split("=")));
  const number = (key, limit) => (/^\d{1,15}$/.test(words.get(key) ?? "") && Number(words.get(key)) < limit ? Number(words.get(key)) : null);
  const run = app.runs[number("run", app.runs.length) ?? 0];
  app.active = run;
  if (run.groupings().includes(words.get("by"))) app.setGroup(words.get("by"));
  if (["time", "events"].includes(words.get("axis"))) app.setAxis(words.get("axis"));
  if (app.panels.some(([id]) => id === words.get("tab"))) app.setPanel(words.get("tab"));
  const at = number("at", run.ticks), from = number("from", run.ticks), to = number("to", run.ticks + 1), life = number("allocation", run.lives);
  const chart = app.chartOf(run);
  if (from !== null && to > from) chart.setWindow(chart.placeOf(from), to >= run.ticks ? chart.extent : chart.placeOf(to));
  if (at !== null) app.choose(run, at, true);
  if (life !== null) app.pick(run, life);
}
