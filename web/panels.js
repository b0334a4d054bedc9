// Panels: the views under the chart. Each function returns an element for the app's active run.
import { barCell, Canvas, choices, empty, facts, fill, hideTip, make, showTip, siteLabel, swatch, table } from "./dom.js";
import { FlameGraph } from "./flame.js";
import { AddressSpace } from "./space.js";
import { seriesColour, theme } from "./theme.js";
import { addressText, countText, momentText, shareText, signedSizeText, sizeText, timeText } from "./units.js";
import { OPEN } from "./data.js";

const STACKS_HINT = "The trace carries no stacks. With PyTorch they are recorded by torch.cuda.memory._record_memory_history(stacks=\"python\") before the program runs.";

function colourOfGroup(app, run, by, group) {
  const at = app.series.index.get(run.group(by).keys[group]);
  return seriesColour(at ?? app.series.restAt, app.series.labels);
}

// ---- why ----
const NUMBER_NAMES = [
  ["asked_bytes", "requested"], ["live_bytes", "live"], ["cached_bytes", "cached, not live"], ["largest_hole_bytes", "largest hole in the cache"],
  ["outside_framework_bytes", "outside the framework"], ["other_process_bytes", "other processes"], ["free_bytes", "free"],
  ["limit_bytes", "the limit set"], ["card_bytes", "the device"], ["unknown_bytes", "not accounted for"],
];

// The answer of stowage explain: what happened, what to change, what that rests on.
export function whyPanel(app) {
  const why = app.active.why;
  if (!why) return empty("No explanation", "This trace does not show why memory was used as it was. stowage explain also reads error texts and runs.");
  const fix = (f) => make("li", {}, make("b", {}, f.change),
    make("p", { class: "soft" }, f.saves_bytes != null ? make("span", { class: "saves" }, `saves ${sizeText(f.saves_bytes)}`) : null,
      f.saves_bytes != null ? ` (${f.basis})` : null, f.cost ? `${f.saves_bytes != null ? "; " : ""}costs: ${f.cost}` : null));
  const cause = (c, i) => make("li", { class: i > 0 && c.confidence < 0.3 ? "unlikely" : "" },
    make("div", { class: "row" }, make("b", {}, c.title), barCell(`${Math.round(c.confidence * 100)}%`, c.confidence)),
    make("ul", {}, c.evidence.map((line) => make("li", {}, line))));
  const numbers = NUMBER_NAMES.filter(([key]) => why.numbers[key]).map(([key, name]) => [name, sizeText(why.numbers[key])]);
  const element = make("div", { class: "why" },
    make("p", { class: "headline" }, `${why.headline}.`),
    make("div", { class: "why-parts" },
      make("section", {}, make("h3", {}, "What to change"), why.fixes.length ? make("ol", { class: "fixes" }, why.fixes.map(fix)) : make("p", { class: "soft" }, "Nothing needs to change as far as this trace shows."),
        why.notes.length ? [make("h3", {}, "Notes"), make("ul", { class: "soft notes" }, why.notes.map((line) => make("li", {}, line)))] : null),
      make("section", {}, make("h3", {}, "Why"), why.causes.length ? make("ul", { class: "causes" }, why.causes.map(cause)) : make("p", { class: "soft" }, "No cause was found: no request failed."),
        numbers.length ? [make("h3", {}, app.active.failures.length ? "Memory when it failed" : "Memory"), facts(numbers)] : null)));
  element.csv = () => [["change", "saves_bytes", "basis", "cost"], ...why.fixes.map((f) => [f.change, f.saves_bytes ?? "", f.basis, f.cost])];
  return element;
}

// ---- balance: several runs or ranks ----
export function balancePanel(app) {
  const runs = app.runs, peak = (r) => app.peakOf(r), mean = runs.reduce((sum, r) => sum + peak(r), 0) / runs.length;
  const most = Math.max(...runs.map(peak), 1), order = [...runs].sort((a, b) => peak(b) - peak(a));
  const percent = (r) => (mean > 0 ? 100 * (peak(r) - mean) / mean : 0);
  const largest = (r) => r.holders(app.by, r.peakTick)[0];
  const peaks = table([
    { title: "Run", cell: (r) => make("button", { type: "button", class: "link", onclick: () => app.activate(r) }, app.nameOf(r)), class: "wide" },
    { title: app.hostOnly ? "Peak host" : "Peak live", number: true, cell: (r) => barCell(sizeText(peak(r)), peak(r) / most), raw: peak },
    { title: "Against the mean", number: true, cell: (r) => make("span", { class: percent(r) >= 10 ? "bad" : "" }, `${percent(r) >= 0 ? "+" : "−"}${Math.abs(percent(r)).toFixed(1)}%`), raw: (r) => peak(r) - mean },
    ...(app.hostOnly ? [] : [{ title: "Peak reserved", number: true, cell: (r) => (r.reservedKnown ? sizeText(r.peakReservedBytes) : "–"), raw: (r) => (r.reservedKnown ? r.peakReservedBytes : NaN) },
    ...(runs.some((r) => r.host) ? [{ title: "Peak host", number: true, cell: (r) => (r.host ? sizeText(r.host.peak) : "–"), raw: (r) => r.host?.peak ?? NaN }] : []),
    { title: "Out of memory", number: true, cell: (r) => (r.failureCount ? make("span", { class: "bad" }, countText(r.failureCount)) : "never"), raw: (r) => r.failureCount },
    { title: "Most at the peak", cell: (r) => (largest(r) ? siteLabel(largest(r).label) : "–"), class: "wide" }]),
  ], order, { caption: balanceText(app, order, mean) });
  const sites = balanceRows(app), element = make("div", {}, peaks, sites.length ? balanceSites(app, sites) : null);
  element.csv = peaks.csv;
  return element;
}

export function balanceText(app, order, mean) {
  const first = order[0], last = order[order.length - 1], [high, low] = [first, last].map((r) => app.peakOf(r)), spread = high - low;
  if (spread <= mean * 0.01) return `Balanced: the peaks of ${order.length} runs differ by ${sizeText(spread)}.`;
  return `The peaks differ by ${sizeText(spread)}: ${app.nameOf(first)} has the highest, ${sizeText(high)}, ${(100 * (high - mean) / mean).toFixed(1)}% above the mean; ${app.nameOf(last)} the lowest, ${sizeText(low)}.`;
}

// What differs between the runs at their peaks, the largest difference first.
function balanceRows(app) {
  const rows = new Map();
  app.runs.forEach((run, i) => {
    for (const holder of run.holders(app.by, run.peakTick)) {
      const key = `${holder.label.name}\n${holder.label.place}`;
      if (!rows.has(key)) rows.set(key, { label: holder.label, bytes: app.runs.map(() => 0) });
      rows.get(key).bytes[i] += holder.bytes;
    }
  });
  const spread = (row) => Math.max(...row.bytes) - Math.min(...row.bytes);
  return [...rows.values()].filter((row) => spread(row) > 0).sort((a, b) => spread(b) - spread(a)).slice(0, 100);
}

function balanceSites(app, rows) {
  const most = Math.max(...rows.flatMap((row) => row.bytes), 1);
  return table([
    { title: { site: "Call site", tag: "Tag", size: "Size of the allocation" }[app.by], cell: (row) => siteLabel(row.label), class: "wide" },
    { title: "Difference", number: true, cell: (row) => sizeText(Math.max(...row.bytes) - Math.min(...row.bytes)) },
    ...app.runs.map((run, i) => ({ title: app.nameOf(run), number: true, cell: (row) => barCell(sizeText(row.bytes[i]), row.bytes[i] / most), raw: (row) => row.bytes[i] })),
  ], rows, { caption: "What differs most between the runs, each at its own peak" });
}

export function flamePanel(app) {
  const run = app.active;
  if (!run.hasStacks) return empty("No flame graph", STACKS_HINT);
  const root = run.flame(run.chosen, app.hideFramework);
  if (root.bytes === 0) return empty("Nothing is live at this moment", "Choose another moment in the chart above.");
  const toggle = make("label", { class: "check" }, make("input", { type: "checkbox", id: "hide-framework", ...(app.hideFramework ? { checked: true } : {}), onchange: (e) => { app.hideFramework = e.target.checked; app.showPanel(); } }), "Hide PyTorch and Python frames");
  const element = make("div", {}, make("div", { class: "row" }, make("p", { class: "soft" }, "Outermost frame on top; width is bytes live at the chosen moment, colours are those of the chart. Click a frame to zoom, click it again to go back."), toggle),
    (app.flameGraph = new FlameGraph(run, root, app.matched.get(run), app.series.labels)).element);
  element.csv = () => [["stack, outermost first", "bytes", "allocations"], ...flameRows(run, root)];
  return element;
}

// Each stack with what is live in it itself.
function flameRows(run, root) {
  const rows = [], visit = (node, path) => {
    let bytes = node.bytes, count = node.count;
    for (const child of node.children.values()) {
      bytes -= child.bytes;
      count -= child.count;
      const text = run.frameText(child.frame);
      visit(child, [...path, text.place ? `${text.name} ${text.place}` : text.name]);
    }
    if (bytes > 0) rows.push([path.join(";"), bytes, count]);
  };
  visit(root, []);
  return rows.sort((a, b) => b[1] - a[1]);
}

export function holdersPanel(app) {
  const run = app.active, by = app.by, rows = run.holders(by, run.chosen), matched = app.matched.get(run);
  if (rows.length === 0) return empty("Nothing is live at this moment", "Choose another moment in the chart above.");
  const total = rows.reduce((sum, row) => sum + row.bytes, 0), most = rows[0].bytes, group = run.group(by);
  const shown = matched ? rows.filter((row) => row.label.name.toLowerCase().includes(app.words) || row.label.place.toLowerCase().includes(app.words) || row.label.file?.toLowerCase().includes(app.words)) : rows;
  return table([
    { title: "", cell: (row) => swatch(colourOfGroup(app, run, by, row.group)) },
    { title: { site: "Call site", tag: "Tag", size: "Size of the allocation" }[by], cell: (row) => siteLabel(row.label), class: "wide" },
    { title: "Live", number: true, cell: (row) => barCell(sizeText(row.bytes), row.bytes / most), raw: (row) => row.bytes },
    { title: "Share", number: true, cell: (row) => shareText(row.bytes, total) },
    { title: "Allocations", number: true, cell: (row) => countText(row.count), raw: (row) => row.count },
    { title: "Average", number: true, cell: (row) => sizeText(row.bytes / row.count), raw: (row) => Math.round(row.bytes / row.count) },
    { title: "Most ever", number: true, cell: (row) => sizeText(group.most[row.group]), raw: (row) => group.most[row.group] },
  ], shown, { caption: `${sizeText(total)} live in ${countText(rows.reduce((n, r) => n + r.count, 0))} allocations at the chosen moment` });
}

export function spacePanel(app) {
  const run = app.active, space = new AddressSpace(app, run, run.chosen);
  if (space.total === 0) return empty("No addresses here", run.lives ? "Nothing is reserved and nothing is live at this moment. Choose another one in the chart above." : "The trace holds no allocation, or more than 4096 streams.");
  return space.element;
}

export function allocationsPanel(app) {
  const run = app.active, chart = app.chartOf(run), [from, to] = chart.ticksShown ?? [0, run.ticks];
  const matched = app.matched.get(run)?.lives, rows = [];
  for (let i = 0; i < run.lives; i++) {
    if (i >= run.before && run.start[i] >= to) break;
    if (run.end[i] >= from && (!matched || matched[i])) rows.push(i);
  }
  if (rows.length === 0) return empty("No allocations here", matched ? "Nothing in view matches the search." : "Zoom out, or choose another stretch.");
  rows.sort((a, b) => run.size[b] - run.size[a]);
  const group = run.group(app.by);
  const when = (tick) => `${countText(tick)} · ${momentText(run.times[tick])}`;
  return table([
    { title: "", cell: (life) => swatch(seriesColour(run.colour[life], app.series.labels)) },
    { title: "Size", number: true, cell: (life) => sizeText(run.size[life]), raw: (life) => run.size[life] },
    { title: { site: "Call site", tag: "Tag", size: "Size class" }[app.by], cell: (life) => siteLabel(group.labels[group.of[life]]), class: "wide" },
    { title: "From event · time", number: true, cell: (life) => (life < run.before ? "before the trace" : when(run.start[life])), raw: (life) => (life < run.before ? "" : run.start[life]) },
    { title: "To event · time", number: true, cell: (life) => (run.end[life] === OPEN ? "still live" : when(run.end[life])), raw: (life) => (run.end[life] === OPEN ? "" : run.end[life]) },
    { title: "Address", number: true, cell: (life) => make("span", { class: "mono" }, addressText(run.address(life))) },
  ], rows, { onpick: (life) => app.pick(run, life, true), picked: (life) => app.picked?.run === run && app.picked.life === life, limit: 300,
    caption: `${countText(rows.length)} allocations touch what the chart shows, largest first; click one to see its stack and its life` });
}

// ---- iterations ----
export function iterationsPanel(app) {
  const run = app.active, it = run.iterations, list = it.list;
  if (list.length < 2) return empty("No iterations to compare", "The trace has no marks that repeat, and no allocation that comes back at regular distances. PyTorch marks optimizer steps by itself while it records; torch.profiler.record_function(\"iteration\") makes marks of your own.");
  app.rounds ??= new Map();
  if (!app.rounds.has(run)) app.rounds.set(run, [Math.min(1, list.length - 2), list.length - 1]);
  const chosen = app.rounds.get(run);
  const how = it.how === "marks" ? `by the mark “${it.name}”` : `guessed from an allocation of ${sizeText(it.guessBytes)} that comes back`;
  const bars = roundBars(run, chosen, (index, first) => { chosen[first ? 0 : 1] = index; app.showPanel(); });
  const input = (which, label) => make("label", {}, label, make("input", { type: "number", min: 1, max: list.length, value: chosen[which] + 1, onchange: (e) => {
    chosen[which] = Math.max(0, Math.min(list.length - 1, Number(e.target.value) - 1 || 0));
    app.showPanel();
  } }));
  const element = make("div", {},
    make("div", { class: "row" }, make("p", { class: "soft" }, `${countText(list.length)} iterations, ${how}. `, it.growth ? make("b", {}, `What stays live changes by ${signedSizeText(it.growth)} each (median).`) : "What stays live does not grow."),
      make("div", { class: "row" }, input(0, "Compare the end of "), input(1, " with the end of "))),
    bars, roundDifference(app, run, list[chosen[0]], list[chosen[1]]));
  element.csv = () => [["iteration", "first_event", "end_event", "allocations", "peak_bytes", "end_bytes"], ...list.map((r) => [r.number, r.start, r.end, r.allocs, r.peak, r.live])];
  return element;
}

function roundBars(run, chosen, pick) {
  const list = run.iterations.list, most = Math.max(...list.map((r) => r.peak), 1);
  const indexAt = (canvas, e) => {
    const box = canvas.element.getBoundingClientRect();
    return Math.min(list.length - 1, Math.max(0, Math.floor((e.clientX - box.left) / box.width * list.length)));
  };
  const canvas = new Canvas("rounds", `Peak and end of each of ${list.length} iterations`, (c, width, height) => {
    const wide = width / list.length, gap = wide > 4 ? 1.5 : 0, names = theme.names;
    list.forEach((r, i) => {
      const x = i * wide, peak = r.peak / most * (height - 6), live = r.live / most * (height - 6), on = chosen.includes(i);
      c.fillStyle = names.rest;
      c.fillRect(x, height - peak, Math.max(0.5, wide - gap), peak);
      c.fillStyle = on ? names.bad : names.accent;
      c.fillRect(x, height - live, Math.max(0.5, wide - gap), live);
      if (on) c.fillRect(x, 0, Math.max(2, wide - gap), 3);
    });
  });
  canvas.element.addEventListener("pointermove", (e) => {
    const r = list[indexAt(canvas, e)];
    showTip(e, make("b", {}, `Iteration ${r.number}`), facts([["peak", sizeText(r.peak)], ["live at its end", sizeText(r.live)], ["allocations", countText(r.allocs)], ["events", `${countText(r.start)} to ${countText(r.end)}`]]));
  });
  canvas.element.addEventListener("pointerleave", hideTip);
  canvas.element.addEventListener("click", (e) => pick(indexAt(canvas, e), e.shiftKey));
  return make("div", {}, canvas.element, make("p", { class: "soft" }, "Tall: the peak of each iteration. Solid: what is live at its end. Click to choose the later one, Shift and click the earlier."));
}

function differenceRows(a, b) {
  const rows = new Map();
  for (const [which, list] of [[0, a], [1, b]]) {
    for (const holder of list) {
      const key = `${holder.label.name}\n${holder.label.place}`;
      if (!rows.has(key)) rows.set(key, { label: holder.label, bytes: [0, 0], count: [0, 0] });
      rows.get(key).bytes[which] += holder.bytes;
      rows.get(key).count[which] += holder.count;
    }
  }
  return [...rows.values()].sort((x, y) => Math.abs(y.bytes[1] - y.bytes[0]) - Math.abs(x.bytes[1] - x.bytes[0]) || y.bytes[1] - x.bytes[1]);
}

function differenceTable(app, rows, first, second, caption) {
  const most = Math.max(1, ...rows.map((r) => Math.abs(r.bytes[1] - r.bytes[0])));
  const change = (r) => r.bytes[1] - r.bytes[0];
  const sum = (which) => rows.reduce((s, r) => s + r.bytes[which], 0);
  const all = { label: { name: "all", place: "" }, bytes: [sum(0), sum(1)], count: [0, 1].map((w) => rows.reduce((s, r) => s + r.count[w], 0)) };
  return table([
    { title: { site: "Call site", tag: "Tag", size: "Size of the allocation" }[app.by], cell: (r) => siteLabel(r.label), class: "wide" },
    { title: first, number: true, cell: (r) => sizeText(r.bytes[0]), raw: (r) => r.bytes[0] },
    { title: second, number: true, cell: (r) => sizeText(r.bytes[1]), raw: (r) => r.bytes[1] },
    { title: "Change", number: true, raw: change, cell: (r) => barCell(signedSizeText(change(r)), r === all ? 0 : Math.abs(change(r)) / most, change(r) > 0 ? theme.names.bad : theme.names.good) },
    { title: "Allocations", number: true, cell: (r) => `${countText(r.count[0])} → ${countText(r.count[1])}` },
  ], [all, ...rows], { caption });
}

function roundDifference(app, run, a, b) {
  const rows = differenceRows(run.holders(app.by, Math.max(0, a.end - 1)), run.holders(app.by, Math.max(0, b.end - 1)));
  return differenceTable(app, rows, `After ${a.number}`, `After ${b.number}`, `Live at the end of iteration ${b.number} against ${a.number}; peaks ${sizeText(b.peak)} against ${sizeText(a.peak)}`);
}

export function comparePanel(app) {
  const [a, b] = app.runs;
  const rows = differenceRows(a.holders(app.by, a.chosen), b.holders(app.by, b.chosen));
  const names = [app.nameOf(a), app.nameOf(b)];
  return differenceTable(app, rows, names[0], names[1],
    `Live at the chosen moments: event ${countText(a.chosen)} of ${names[0]}, event ${countText(b.chosen)} of ${names[1]}${a.chosen === a.peakTick && b.chosen === b.peakTick ? " (their peaks)" : ""}`);
}

// ---- policies ----
export function policiesPanel(app) {
  const run = app.active, rows = run.policies;
  if (!rows) return empty("Nothing to replay", "The trace holds no allocation, or more than 4096 streams.");
  const most = Math.max(...rows.map((p) => p.reserved), run.peakReservedBytes, 1), limits = rows.some((p) => p.minLimit > 0);
  const recorded = { recorded: true, reserved: run.peakReservedBytes, live: run.peakBytes };
  const all = run.reservedKnown ? [recorded, ...rows] : rows;
  const only = (text) => (p) => (p.recorded ? "–" : text(p));
  return table([
    { title: "Policy", cell: (p) => (p.recorded ? make("b", {}, "as recorded") : make("span", { class: "site" }, make("b", {}, p.policy), make("span", { class: "about-policy" }, p.finishes ? p.about : `fails: asks ${sizeText(p.failedBytes)}`))), class: "wide" },
    { title: "Peak reserved", number: true, cell: (p) => barCell(sizeText(p.reserved), p.reserved / most, p.recorded ? theme.names.rest : null), raw: (p) => p.reserved },
    { title: "Over peak live", number: true, cell: (p) => signedSizeText(p.reserved - p.live) },
    ...(limits ? [{ title: "Smallest limit", number: true, cell: only((p) => (p.minLimit ? sizeText(p.minLimit) : "none")) }] : []),
    { title: "Largest hole", number: true, cell: only((p) => sizeText(p.hole)) },
    { title: "Page calls", number: true, cell: only((p) => countText(p.calls)) },
    { title: "Their time, modelled", number: true, cell: only((p) => timeText(p.callsNs)) },
  ], all, { caption: `The same requests replayed through each allocator policy, without a limit${limits ? "; the smallest limit is the one from which the program still finishes" : ". stowage replay --min-limit finds the smallest limit at which each still finishes"}` });
}

// ---- what else is known ----
export function aboutPanel(app) {
  const run = app.active, n = run.notes;
  const note = (count, text) => (count ? make("li", {}, make("b", {}, countText(count)), " ", text) : null);
  const notes = [
    note(run.before, "allocations were live before the recording began; when they began is not known"),
    note(n.unknownFrees, "frees of addresses never seen were passed over"),
    note(n.doubledAllocs, "addresses were given out while still live; the first was ended there"),
    note(n.badSizes, "values that cannot be were passed over"),
    note(n.badSegments, "segment events could not be followed"),
    note(n.skippedEvents, "events were not understood and skipped"),
    note(n.together, "allocations, the smallest and shortest, are combined: too many to show one by one"),
    note(n.leftOutSegments, "of the smallest segments are left out: too many to show"),
  ].filter(Boolean);
  const recorded = run.wallStartMs > 1e11 ? ["recorded", new Date(run.wallStartMs).toLocaleString("en-GB")] : null;
  if (app.hostOnly) return make("div", { class: "about" }, make("div", {}, make("h3", {}, "The run"), facts([["command", run.file], recorded, ["samples of host memory", countText(run.events)], ["span", timeText(run.lastTime)]])));
  return make("div", { class: "about" },
    make("div", {}, make("h3", {}, "The trace"), facts([
      ["file", run.file], ["kind", run.source || "not known"], ["device", `${run.device}${run.deviceName ? ` · ${run.deviceName}` : ""}`],
      run.deviceBytes ? ["device memory", sizeText(run.deviceBytes)] : null,
      recorded, ["events", countText(run.events)], ["allocations", countText(run.lives)], ["span", timeText(run.lastTime)],
      ["stacks", run.hasStacks ? `${countText(run.stackNode.length)} different` : "none recorded"], ["streams", countText(run.streams.length)]]),
    notes.length ? [make("h3", {}, "What could not be known"), make("ul", {}, notes)] : [make("h3", {}, "What could not be known"), make("p", { class: "soft" }, "Nothing: every begin and end is in the trace.")]),
    make("div", {}, run.error ? [make("h3", {}, "The error that came with it"), make("pre", {}, run.error)] : null,
      make("h3", {}, "Allocator settings"), run.settings.length ? facts(run.settings.map(([k, v]) => [k, v || "–"])) : make("p", { class: "soft" }, "The trace carries none."),
      run.failures.length ? [make("h3", {}, `Out of memory, ${countText(run.failureCount)} time${run.failureCount === 1 ? "" : "s"}`), failureList(app, run)] : null));
}

function failureList(app, run) {
  return make("ul", { class: "failures" }, run.failures.slice(0, 50).map((f) => {
    const asker = run.stackFrames(f.node).find((frame) => !run.isFramework(frame));
    return make("li", {}, make("button", { type: "button", class: "link", onclick: () => app.choose(run, f.tick, true) }, `${sizeText(f.asked)} asked at event ${countText(f.tick)}`),
      asker ? make("span", { class: "soft" }, ` in ${run.frameText(asker).name}  ${run.frameText(asker).place}`) : null);
  }));
}

// One allocation: its life and its stack.
export function inspector(app) {
  const { run, life } = app.picked;
  const frames = run.stackFrames(run.nodeOf(life));
  const end = run.end[life], tag = run.tags[run.tagOf[life]];
  const stack = make("ol", { class: "stack" }, frames.map((frame) => {
    const text = run.frameText(frame);
    return make("li", { class: run.isFramework(frame) ? "soft" : "" }, make("b", {}, text.name), make("span", { class: "place" }, `${text.file}:${text.line}`));
  }));
  return make("aside", { class: "inspector", "aria-label": "Chosen allocation" },
    make("div", { class: "row" }, make("h3", {}, sizeText(run.size[life])), make("button", { type: "button", "aria-label": "Close", onclick: () => app.pick(null) }, "×")),
    facts([
      ["bytes", countText(run.size[life])], ["address", addressText(run.address(life))],
      ["from", life < run.before ? "before the trace began" : `event ${countText(run.start[life])} · ${momentText(run.times[run.start[life]])}`],
      ["to", end === OPEN ? "the end of the trace, still live" : `event ${countText(end)} · ${momentText(run.times[end])}`],
      end !== OPEN && life >= run.before ? ["lived", timeText(run.times[end] - run.times[run.start[life]])] : null,
      tag ? ["tag", run.texts[tag]] : null, run.streams.length > 1 ? ["stream", String(run.streams[run.streamOf[life]])] : null]),
    make("div", { class: "choices" }, make("button", { type: "button", onclick: () => app.chartOf(run).showTicks(run.start[life], end === OPEN ? run.ticks - 1 : end) }, "Zoom to its life")),
    frames.length ? stack : make("p", { class: "soft" }, "No stack was recorded for it."));
}
