// Main: the app. Holds the selection, and updates the views when it changes.
import { unpack, OPEN } from "./data.js";
import { Run, chooseSeries, colourRun } from "./model.js";
import { seriesColour, startTheme } from "./theme.js";
import { byId, choices, facts, fill, hideTip, make, siteLabel, swatch } from "./dom.js";
import { TimeChart } from "./chart.js";
import { chartRows, saveCsv, savePng } from "./export.js";
import { linesPanel } from "./lines.js";
import { readLink, writeLink } from "./link.js";
import { aboutPanel, balancePanel, balanceText, allocationsPanel, comparePanel, flamePanel, holdersPanel, inspector, iterationsPanel, policiesPanel, spacePanel, whyPanel } from "./panels.js";
import { addressText, countText, momentText, shareText, signedSizeText, sizeText, timeText } from "./units.js";

const KEYS = [
  ["← →", "move along the trace"], ["↑ ↓  or  + −", "zoom in and out"], ["0", "show the whole trace"],
  ["p", "go to the peak"], ["o", "go to the next out-of-memory"], ["[ ]", "previous, next iteration"],
  [", .", "one event back, forward"], ["Enter", "zoom to the chosen moment"],
  ["f", "fit the height to what changes"], ["g", "stack by the next grouping"], ["x", "time or events along the bottom"],
  ["1 … 8", "views below the chart"], ["w", "why, and what to change"], ["l", "lines beside their source, if the run was profiled"], ["/", "search"], ["t", "light or dark"], ["Esc", "close, clear the search"], ["?", "this help"],
];
const KEYS_MOUSE = "Wheel zooms, drag moves, Shift and drag zooms to a stretch, a click chooses a moment, a double-click zooms in. The address of the page is a link to what it shows.";
const GROUP_NAMES = { site: "Call site", tag: "Tag", size: "Size" };

class App {
  constructor(runs) {
    this.runs = runs;
    this.active = runs[0];
    // Time would compress everything into the busy parts; host memory alone is sampled over time.
    this.axis = this.firstAxis = runs.every((r) => r.lives === 0 && r.host) ? "time" : "events";
    this.fit = false;
    this.lit = -1;
    this.words = "";
    this.matched = new Map();
    this.hideFramework = true;
    this.picked = null;
    this.by = runs[0].groupings()[0];
    this.hostOnly = runs.every((r) => r.lives === 0 && r.host); // a run without a trace
    for (const run of runs) run.chosen = this.hostOnly ? run.hostPeakTick() : run.peakTick;
    this.regroup();
    this.charts = runs.map((run) => new TimeChart(this, run));
    this.panels = [
      ...(runs.some((r) => r.why) ? [["why", "Why", whyPanel]] : []),
      ...(runs.some((r) => r.profile) ? [["lines", "Lines", linesPanel]] : []),
      ["flame", "Flame graph", flamePanel], ["holders", "Holders", holdersPanel], ["space", "Address space", spacePanel],
      ["allocations", "Allocations", allocationsPanel], ["iterations", "Iterations", iterationsPanel],
      ...(runs.length === 2 ? [["compare", "Difference", comparePanel]] : []),
      ...(runs.length > 1 ? [["balance", "Balance", balancePanel]] : []),
      ...(runs.some((r) => r.policies) ? [["policies", "Policies", policiesPanel]] : []),
      ["about", "About", aboutPanel],
    ].filter(([id]) => !this.hostOnly || ["why", "lines", "balance", "about"].includes(id));
    const explained = runs[0].why?.causes.length > 0;
    this.panel = runs.length === 2 && !this.hostOnly ? "compare" : runs.length > 1 ? "balance" : explained ? "why" : runs[0].profile ? "lines" : this.hostOnly && runs[0].why ? "why" : this.hostOnly ? "about" : runs[0].hasStacks ? "flame" : "holders";
    this.lettered = { why: "w", lines: "l" }; // their keys; the other views have numbers
    this.numbered = this.panels.filter(([id]) => !this.lettered[id]);
    this.build();
  }

  // The peak by which runs are compared.
  peakOf(run) {
    return this.hostOnly ? run.host.peak : run.peakBytes;
  }
  nameOf(run) {
    const same = this.runs.filter((r) => r.file === run.file).length > 1;
    return same ? `${run.file}, device ${run.device}` : run.file;
  }
  chartOf(run) {
    return this.charts[this.runs.indexOf(run)];
  }
  // Two runs share one height, so that they can be compared by eye.
  sharedHigh(chart) {
    if (this.charts.length < 2) return 0;
    let most = 0;
    for (const c of this.charts) if (c !== chart) most = Math.max(most, c.run.peakReservedBytes, c.run.peakBytes);
    return most * 1.06;
  }

  // ---- what is shown ----
  regroup() {
    this.series = chooseSeries(this.runs, this.by);
    for (const run of this.runs) colourRun(run, this.by, this.series, this.matched.get(run));
  }
  setGroup(by) {
    this.by = by;
    this.regroup();
    this.buildControls();
    this.refresh();
  }
  setAxis(axis) {
    if (axis === this.axis) return;
    this.axis = axis;
    for (const chart of this.charts) chart.changeAxis();
    this.buildControls();
  }
  setFit(fit) {
    this.fit = fit;
    this.buildControls();
    this.redraw();
  }
  activate(run) {
    if (this.active === run) return;
    this.active = run;
    this.refresh();
  }
  choose(run, tick, reveal = false) {
    this.active = run;
    run.chosen = Math.min(run.ticks - 1, Math.max(0, Math.round(tick)));
    if (reveal) this.chartOf(run).reveal(run.chosen);
    this.refresh();
  }
  pick(run, life, go = false) {
    this.picked = run ? { run, life } : null;
    this.noteLink();
    if (go) this.chartOf(run).reveal(run.start[life]);
    this.redraw();
    this.showPanel();
  }
  search(words) {
    this.words = words.trim().toLowerCase();
    this.matched.clear();
    if (this.words) for (const run of this.runs) this.matched.set(run, run.match(this.words));
    this.regroup();
    const found = byId("found");
    found.hidden = !this.words;
    if (this.words) {
      fill(found, ...this.runs.map((run) => {
        const m = this.matched.get(run), live = run.livesAt(run.chosen).filter((life) => m.lives[life]).reduce((sum, life) => sum + run.size[life], 0);
        return make("span", {}, make("b", {}, countText(m.count)), ` of ${countText(run.lives)} allocations match${this.runs.length > 1 ? ` in ${this.nameOf(run)}` : ""}, `, make("b", {}, sizeText(live)), " of them live at the chosen moment. ");
      }));
    }
    this.refresh();
  }
  // Puts what is shown into the address, once things have come to rest.
  noteLink() {
    clearTimeout(this.linkTimer);
    this.linkTimer = setTimeout(() => writeLink(this), 120);
  }
  changed() { // the visible range changed
    this.noteLink();
    if (this.panel !== "allocations" || this.waiting) return;
    this.waiting = setTimeout(() => { this.waiting = 0; this.showPanel(); }, 120);
  }
  redraw() {
    for (const chart of this.charts) chart.redraw();
  }
  refresh() {
    this.noteLink();
    this.redraw();
    if (this.runs.length > 2) this.buildFacts();
    this.showLegend();
    this.showMoment();
    this.showPanel();
    this.charts.forEach((chart) => {
      chart.element.classList.toggle("active", this.charts.length > 1 && chart.run === this.active);
    });
  }

  describe(run, life) {
    const group = run.group(this.by), label = group.labels[group.of[life]];
    return [make("b", {}, sizeText(run.size[life])), make("p", {}, siteLabel(label)),
      make("p", { class: "soft" }, life < run.before ? "from before the trace" : `from event ${countText(run.start[life])}`, run.end[life] === OPEN ? ", still live at the end" : ` to ${countText(run.end[life])}`),
      make("p", { class: "mono soft" }, addressText(run.address(life)))];
  }

  // ---- building ----
  build() {
    const first = this.runs[0];
    document.title = `${[...new Set(this.runs.map((r) => r.file))].join(" and ")} – Stowage report`;
    fill(byId("title"), [...new Set(this.runs.map((r) => r.file))].join("  ↔  "));
    const count = countText(this.runs.reduce((n, r) => n + r.events, 0));
    fill(byId("subtitle"), this.hostOnly ? `${count} samples of host memory · ${timeText(first.lastTime)}` : [`${count} events`, timeText(first.lastTime), first.source, first.deviceName || (this.runs.every((r) => r.device === first.device) ? `device ${first.device}` : `${this.runs.length} devices`)].filter(Boolean).join(" · "));
    fill(byId("charts"), this.charts.map((chart) => chart.element));
    byId("charts").classList.toggle("two", this.charts.length > 1);
    byId("charts").classList.toggle("many", this.charts.length > 2);
    for (const chart of this.charts) chart.caption.textContent = this.charts.length > 1 ? this.nameOf(chart.run) : "";
    this.buildFacts();
    this.buildControls();
    this.listen();
    fill(byId("footer"), "Made by stowage report. Everything is in this file; it loads nothing.");
    byId("loading").remove();
    byId("main").hidden = false;
    this.refresh();
  }
  buildFacts() {
    const card = (name, values, more, onclick, bad) => make(onclick ? "button" : "div", { class: `fact${bad ? " bad" : ""}`, ...(onclick ? { type: "button", onclick } : {}) },
      make("span", {}, name), make("b", { class: this.runs.length === 2 ? "pair" : "" }, values), make("em", {}, more));
    // Two runs are compared; of more (ranks, or the devices of one trace) the selected one is shown.
    const runs = this.runs.length > 2 ? [this.active] : this.runs, one = runs.length === 1, run = runs[0], it = run.iterations;
    const per = (value) => runs.map(value).join(" → ");
    const unused = (r) => r.reservedAt(r.peakTick) - r.liveAt(r.peakTick);
    const failures = runs.reduce((n, r) => n + r.failureCount, 0);
    const host = runs.some((r) => r.host) ? [card("Peak host memory", per((r) => (r.host ? sizeText(r.host.peak) : "–")), run.host?.limit ? `limit ${sizeText(run.host.limit)}` : "of the whole run")] : [];
    if (this.hostOnly) {
      fill(byId("facts"), host, card("Host memory at the end", per((r) => sizeText(r.host.bytes[r.host.bytes.length - 1])), `after ${timeText(run.lastTime)}`), card("Device memory", "none recorded", "stowage run --record FILE records it"), this.runs.length > 2 ? this.balanceCard(card) : null);
      return;
    }
    fill(byId("facts"),
      card("Peak live", per((r) => sizeText(r.peakBytes)), one ? `event ${countText(run.peakTick)}, ${momentText(run.times[run.peakTick] ?? 0)}` : this.changeText((r) => r.peakBytes), () => { for (const r of runs) this.choose(r, r.peakTick, true); }),
      card("Peak reserved", per((r) => (r.reservedKnown ? sizeText(r.peakReservedBytes) : "not recorded")), one ? (run.reservedKnown ? `event ${countText(run.peakReservedTick)}` : "no segments in this trace") : this.changeText((r) => r.peakReservedBytes), run.reservedKnown ? () => { for (const r of runs) this.choose(r, r.peakReservedTick, true); } : null),
      card("Reserved, not live, at the peak", per((r) => (r.reservedKnown ? sizeText(unused(r)) : "–")), one ? (run.reservedKnown ? `${shareText(unused(run), run.reservedAt(run.peakTick))} of what is reserved` : "") : per((r) => shareText(unused(r), r.reservedAt(r.peakTick)))),
      card("Out of memory", per((r) => (r.failureCount ? countText(r.failureCount) : "never")), failures ? `${sizeText((run.failures[0] ?? runs[1].failures[0]).asked)} asked first` : "no request failed", failures ? () => this.nextFailure() : null, failures > 0),
      card("Left after each iteration", it.list.length >= 3 ? per((r) => signedSizeText(r.iterations.growth)) : "–", it.list.length ? `${per((r) => countText(r.iterations.list.length))} iterations, median` : "no iterations found", it.list.length >= 2 ? () => this.setPanel("iterations") : null),
      ...host,
      ...(this.runs.length > 2 ? [this.balanceCard(card)] : []));
  }
  balanceCard(card) {
    const order = [...this.runs].sort((a, b) => this.peakOf(b) - this.peakOf(a)), mean = order.reduce((sum, r) => sum + this.peakOf(r), 0) / order.length;
    const first = order[0], above = mean > 0 ? 100 * (this.peakOf(first) - mean) / mean : 0;
    const made = card("Imbalance of the peaks", `${above.toFixed(1)}%`, `${this.nameOf(first)} against the mean of ${order.length}`, () => this.setPanel("balance"), above >= 10);
    made.title = balanceText(this, order, mean);
    return made;
  }
  changeText(value) {
    const [a, b] = this.runs.map(value);
    return this.runs.length === 2 ? `${signedSizeText(b - a)}${a > 0 ? `, ${b < a ? "−" : "+"}${shareText(Math.abs(b - a), a)}` : ""}` : "";
  }
  buildControls() {
    const groups = [...new Set(this.runs.flatMap((run) => run.groupings()))];
    for (const id of ["groups", "scales", "jumps"]) byId(id).hidden = this.hostOnly;
    choices(byId("groups"), groups.map((by) => [by, GROUP_NAMES[by], `Stack by ${GROUP_NAMES[by].toLowerCase()} (g)`]), this.by, (by) => this.setGroup(by));
    choices(byId("axes"), [["events", "Events", "Events along the bottom (x)"], ["time", "Time", "Time along the bottom (x)"]], this.axis, (axis) => this.setAxis(axis));
    choices(byId("scales"), [[false, "From zero", "Height from zero (f)"], [true, "Fit", "Height fitted to what changes in view (f)"]], this.fit, (fit) => this.setFit(fit));
    choices(byId("jumps"), [["peak", "Peak", "Go to the peak (p)"], ...(this.runs.some((r) => r.failures.length) ? [["failure", "Out of memory", "Go to the next failure (o)"]] : [])], null, (where) => (where === "peak" ? this.goPeak() : this.nextFailure()));
    fill(byId("tabs"), this.panels.map(([id, label]) => make("button", { type: "button", role: "tab", id: `tab-${id}`, title: `${label} (${this.lettered[id] ?? this.numbered.findIndex(([name]) => name === id) + 1})`, "aria-selected": String(id === this.panel), tabindex: id === this.panel ? 0 : -1, onclick: () => this.setPanel(id) }, label)));
  }
  setPanel(id) {
    this.panel = id;
    this.noteLink();
    this.buildControls();
    this.showPanel();
  }
  showPanel() {
    const [id, label, build] = this.panels.find(([name]) => name === this.panel);
    const which = this.runs.length > 1 && id !== "compare" && id !== "balance" ? make("div", { class: "choices which", role: "group", "aria-label": "Run" },
      this.runs.map((run) => make("button", { type: "button", "aria-pressed": String(run === this.active), onclick: () => this.activate(run) }, this.nameOf(run)))) : null;
    const panel = byId("panel");
    panel.setAttribute("aria-label", label);
    const view = build(this);
    this.csv = view.csv ?? null;
    byId("panel-csv").hidden = !this.csv;
    fill(panel, which, make("div", { class: this.picked ? "with-inspector" : "" }, make("div", { class: "view" }, view), this.picked ? inspector(this) : null));
  }
  showMoment() {
    const run = this.active, tick = run.chosen, live = run.liveAt(tick), peak = tick === run.peakTick;
    const failure = run.failures.find((f) => f.tick === tick);
    if (this.hostOnly) {
      // The kernel knows the peak; a sample is a little below it if the peak fell between two samples.
      const held = run.hostAt(run.times[tick]), most = tick === run.hostPeakTick(), missed = most && sizeText(held) !== sizeText(run.host.peak);
      fill(byId("moment"), make("p", {}, make("b", { class: "big" }, sizeText(held)), " host memory ", most ? make("span", { class: "badge" }, missed ? "largest sample" : "peak") : null),
        make("p", { class: "soft" }, momentText(run.times[tick]), missed ? ` · the peak of ${sizeText(run.host.peak)} was between two samples` : ""));
      return;
    }
    fill(byId("moment"),
      this.runs.length > 1 ? make("p", { class: "soft" }, this.nameOf(run)) : null,
      make("p", {}, make("b", { class: "big" }, sizeText(live)), " live ", peak ? make("span", { class: "badge" }, "peak") : null, failure ? make("span", { class: "badge bad" }, "out of memory") : null),
      make("p", { class: "soft" }, `event ${countText(tick)} · ${momentText(run.times[tick] ?? 0)}${run.reservedKnown ? ` · ${sizeText(run.reservedAt(tick))} reserved` : ""}${run.host ? ` · ${sizeText(run.hostAt(run.times[tick] ?? 0))} host memory` : ""}`));
  }
  showLegend() {
    const run = this.active, now = run.seriesAt(run.chosen), labels = this.series.labels;
    const total = now.reduce((a, b) => a + b, 0), order = [...labels.keys()].sort((a, b) => now[b] - now[a]);
    fill(byId("legend"), make("ul", {}, order.filter((s) => now[s] > 0 || order.length <= 8).map((s) => {
      const item = make("li", { class: now[s] > 0 ? "" : "none" }, swatch(seriesColour(s, labels)), siteLabel(labels[s], true),
        make("span", { class: "number" }, sizeText(now[s])), make("span", { class: "number share" }, shareText(now[s], total)));
      item.addEventListener("pointerenter", () => { this.lit = s; this.redraw(); });
      item.addEventListener("pointerleave", () => { this.lit = -1; this.redraw(); });
      return item;
    })), this.words && now[labels.length] > 0 ? make("p", { class: "soft" }, swatch(seriesColour(labels.length, labels)), ` ${sizeText(now[labels.length])} does not match`) : null);
  }

  // ---- going somewhere ----
  goPeak() {
    this.choose(this.active, this.active.peakTick, true);
  }
  nextFailure() {
    const run = this.active.failures.length ? this.active : this.runs.find((r) => r.failures.length);
    if (!run) return;
    const next = run.failures.find((f) => f.tick > run.chosen) ?? run.failures[0];
    this.choose(run, next.tick, true);
  }
  goRound(by) {
    const run = this.active, list = run.iterations.list;
    if (!list.length) return;
    let at = list.findIndex((r) => run.chosen < r.end);
    if (at < 0) at = list.length - 1;
    const round = list[Math.max(0, Math.min(list.length - 1, at + by))];
    this.choose(run, round.end - 1, true);
    this.chartOf(run).showTicks(round.start, round.end - 1);
  }
  toggleHelp() {
    const dialog = byId("keys");
    if (dialog.open) return dialog.close();
    fill(dialog, make("h2", { id: "keys-title" }, "Keys"), make("dl", {}, KEYS.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)])),
      make("p", { class: "soft" }, KEYS_MOUSE), make("form", { method: "dialog" }, make("button", { autofocus: true }, "Close")));
    dialog.showModal();
  }

  listen() {
    const chart = () => this.chartOf(this.active);
    byId("zoom-in").addEventListener("click", () => chart().zoom(0.5));
    byId("zoom-out").addEventListener("click", () => chart().zoom(2));
    byId("zoom-all").addEventListener("click", () => { for (const c of this.charts) c.reset(); this.changed(); });
    byId("help").addEventListener("click", () => this.toggleHelp());
    byId("chart-png").addEventListener("click", () => savePng(this));
    byId("chart-csv").addEventListener("click", () => saveCsv(this, "memory", chartRows(this)));
    byId("panel-csv").addEventListener("click", () => saveCsv(this, this.panel, this.csv()));
    addEventListener("hashchange", () => readLink(this, location.hash));
    const toggleTheme = startTheme(() => this.refresh());
    byId("theme").addEventListener("click", toggleTheme);
    const input = byId("search");
    let timer = 0;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.search(input.value), 120);
    });
    byId("tabs").addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      const at = this.panels.findIndex(([id]) => id === this.panel);
      this.setPanel(this.panels[(at + step + this.panels.length) % this.panels.length][0]);
      byId(`tab-${this.panel}`).focus();
      e.preventDefault();
      e.stopPropagation();
    });
    const cycle = (list, now) => list[(list.indexOf(now) + 1) % list.length];
    const keys = {
      ArrowLeft: () => chart().pan(-0.15), ArrowRight: () => chart().pan(0.15),
      ArrowUp: () => chart().zoom(0.7, chart().placeOf(this.active.chosen)), ArrowDown: () => chart().zoom(1 / 0.7),
      "+": () => chart().zoom(0.5, chart().placeOf(this.active.chosen)), "=": () => chart().zoom(0.5, chart().placeOf(this.active.chosen)), "-": () => chart().zoom(2),
      0: () => byId("zoom-all").click(), p: () => this.goPeak(), o: () => this.nextFailure(),
      "[": () => this.goRound(-1), "]": () => this.goRound(1),
      ",": () => this.choose(this.active, this.active.chosen - 1, true), ".": () => this.choose(this.active, this.active.chosen + 1, true),
      Enter: () => chart().showTicks(this.active.chosen - 100, this.active.chosen + 100),
      f: () => this.setFit(!this.fit), g: () => this.setGroup(cycle(this.active.groupings(), this.by)),
      x: () => this.setAxis(this.axis === "time" ? "events" : "time"), t: toggleTheme,
      w: () => { if (this.panels.some(([id]) => id === "why")) this.setPanel("why"); },
      l: () => { if (this.panels.some(([id]) => id === "lines")) this.setPanel("lines"); },
      "/": () => input.focus(), "?": () => this.toggleHelp(),
      Escape: () => { if (this.picked) this.pick(null); else if (this.words) { input.value = ""; this.search(""); } },
    };
    document.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || byId("keys").open) return;
      const typing = e.target instanceof HTMLInputElement && e.target.type !== "checkbox";
      if (typing) {
        if (e.key === "Escape") { input.value = ""; this.search(""); input.blur(); }
        if (e.key === "Enter") e.target.blur();
        return;
      }
      if (e.key === "Enter" && e.target !== document.body && !(e.target instanceof HTMLCanvasElement)) return;
      hideTip(); // a key may change what is under the pointer
      if (e.key >= "1" && e.key <= String(this.numbered.length)) this.setPanel(this.numbered[e.key - 1][0]);
      else if (keys[e.key]) keys[e.key]();
      else return;
      e.preventDefault();
    });
  }
}

async function start() {
  startTheme(() => {});
  try {
    const source = byId("data"), runs = await unpack(source.textContent);
    source.remove(); // megabytes of text that are no longer needed
    window.stowage = new App(runs.map((data) => new Run(data)));
    if (location.hash.length > 1) readLink(window.stowage, location.hash);
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  } catch (error) {
    const loading = byId("loading");
    document.documentElement.dataset.failed = String(error);
    if (loading) loading.textContent = `The report could not be shown: ${error.message}. A browser from 2023 or later is needed.`;
    throw error;
  }
}

start();
