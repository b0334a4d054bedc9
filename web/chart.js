// Chart: memory over time, stacked by series, from the whole trace down to single allocations.
//
// The horizontal axis counts time or events; `window` is what is shown of it, in that unit. Each
// pixel column shows the stack at its highest moment, so no peak is lost at any zoom; the thin line
// under it is the lowest total of the column. With few events in view every allocation is drawn
// separately: those that stay throughout at the bottom, those that come or go above.
import { make, Canvas, showTip, hideTip, siteLabel, swatch } from "./dom.js";
import { HostChart, MARGIN } from "./host.js";
import { firstAtLeast } from "./model.js";
import { seriesColour, theme } from "./theme.js";
import { countText, momentText, roundStep, sizeStep, sizeText, timeText } from "./units.js";

const SINGLE_OPS = 700; // the most begins and ends that are drawn one by one
const GRAB = 5; // pixels around a line that count as on it

export class TimeChart {
  // app: {runs, series, axis, fit, choose(run, tick), activate(run), changed()}
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.window = null;
    this.hover = null;
    this.canvas = new Canvas("chart", "", (c, w, h) => this.draw(c, w, h));
    this.overview = new Canvas("overview", "The whole trace; drag to choose what is shown above", (c, w, h) => this.drawOverview(c, w, h));
    this.overview.element.tabIndex = -1;
    this.caption = make("p", { class: "caption" });
    this.host = run.host ? new HostChart(this) : null;
    this.canvas.element.hidden = this.overview.element.hidden = run.lives === 0 && this.host !== null;
    this.element = make("figure", {}, this.caption, this.canvas.element, this.host?.element ?? "", this.overview.element);
    this.listen();
    this.reset();
  }

  // ---- the axis ----
  get extent() {
    return this.app.axis === "time" ? Math.max(1, this.run.lastTime) : this.run.ticks;
  }
  get shortest() {
    return this.app.axis === "time" ? Math.min(this.extent, 1000) : Math.min(this.extent, 8);
  }
  reset() {
    this.window = [0, this.extent];
    this.redraw();
  }
  // The first tick at or after a place on the axis (fractions of ticks stay as they are).
  tickAt(value) {
    return this.app.axis === "time" ? firstAtLeast(this.run.times, value, 0, this.run.events) : value;
  }
  placeOf(tick) {
    if (this.app.axis !== "time") return tick;
    return this.run.times[Math.min(this.run.ticks - 1, Math.max(0, Math.floor(tick)))];
  }
  placeText(value) {
    return this.app.axis === "time" ? timeText(value, this.window[1]) : countText(value);
  }
  setWindow(a, b) {
    const extent = this.extent, length = Math.min(extent, Math.max(this.shortest, b - a));
    const from = Math.min(Math.max(0, (a + b) / 2 - length / 2), extent - length);
    this.window = [from, from + length];
    this.moved();
  }
  // What is under the pointer is another now: a tooltip would tell of what was there.
  moved() {
    this.hover = null;
    hideTip();
    this.redraw();
    this.app.changed();
  }
  zoom(factor, centre = (this.window[0] + this.window[1]) / 2) {
    const [a, b] = this.window;
    const length = Math.min(this.extent, Math.max(this.shortest, (b - a) * factor));
    const share = (centre - a) / (b - a), from = Math.min(Math.max(0, centre - length * share), this.extent - length);
    this.window = [from, from + length];
    this.moved();
  }
  pan(share) {
    const [a, b] = this.window, by = (b - a) * share;
    const from = Math.min(Math.max(0, a + by), this.extent - (b - a));
    this.window = [from, from + b - a];
    this.moved();
  }
  // Brings a tick into view.
  reveal(tick) {
    const place = this.placeOf(tick), [a, b] = this.window;
    if (place < a || place > b) this.setWindow(place - (b - a) / 2, place + (b - a) / 2);
  }
  showTicks(from, to) {
    const a = this.placeOf(from), b = this.placeOf(Math.min(to, this.run.ticks - 1));
    const room = Math.max((b - a) * 0.15, this.shortest / 2);
    this.setWindow(a - room, b + room);
  }
  changeAxis() { // keeps what is in view
    const t = this.ticksShown;
    this.window = t ? [this.placeOf(t[0]), this.placeOf(t[1])] : [0, this.extent];
    this.setWindow(...this.window);
  }

  redraw() {
    this.canvas.redraw();
    this.host?.redraw();
    this.overview.redraw();
  }

  // ---- geometry ----
  edges(width) {
    const columns = Math.max(1, Math.floor(width)), [a, b] = this.window, out = new Float64Array(columns + 1);
    for (let c = 0; c <= columns; c++) out[c] = this.tickAt(a + (b - a) * c / columns);
    if (b >= this.extent) out[columns] = this.run.ticks;
    return out;
  }
  xOf(place) {
    const [a, b] = this.window;
    return MARGIN.left + (place - a) / (b - a) * this.plotWidth;
  }
  valueAt(x) {
    const [a, b] = this.window;
    return a + (x - MARGIN.left) / this.plotWidth * (b - a);
  }
  yOf(bytes) {
    return MARGIN.top + this.plotHeight * (1 - (bytes - this.low) / (this.high - this.low));
  }

  // ---- drawing ----
  draw(c, width, height) {
    const run = this.run, names = theme.names;
    this.plotWidth = Math.max(10, width - MARGIN.left - MARGIN.right);
    this.plotHeight = Math.max(10, height - MARGIN.top - MARGIN.bottom);
    const edges = this.edges(this.plotWidth);
    this.ticksShown = [edges[0], edges[edges.length - 1]];
    this.cols = run.columns(edges);
    this.reserved = run.reservedKnown ? run.reservedColumns(edges) : null;
    this.scale();
    const ops = firstAtLeast(run.opTick, edges[edges.length - 1]) - firstAtLeast(run.opTick, edges[0]);
    this.single = ops <= SINGLE_OPS;
    c.font = "11px system-ui, sans-serif";
    this.drawGrid(c, width);
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, MARGIN.top, this.plotWidth, this.plotHeight);
    c.clip();
    if (run.lives === 0) this.drawNothing(c);
    else if (this.single) this.drawSingle(c, edges);
    else this.drawStack(c);
    if (this.reserved) this.drawReserved(c);
    c.restore();
    this.drawIterations(c);
    this.drawMoments(c, height);
    c.strokeStyle = names.line;
    c.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, this.plotWidth - 1, this.plotHeight - 1);
    this.canvas.element.setAttribute("aria-label", `Memory over time of ${run.file}: ${this.placeText(this.window[0])} to ${this.placeText(this.window[1])}, at most ${sizeText(Math.max(...this.cols.most))} live here. Arrow keys pan and zoom.`);
  }

  scale() {
    let most = 0, least = Infinity;
    for (let i = 0; i < this.cols.columns; i++) {
      most = Math.max(most, this.cols.most[i]);
      least = Math.min(least, this.cols.least[i]);
    }
    if (this.app.fit) { // what changes in view fills the height
      const room = Math.max((most - least) * 0.08, 512);
      this.low = Math.max(0, least - room);
      this.high = most + room;
    } else {
      for (const bytes of this.reserved ?? []) most = Math.max(most, bytes);
      this.low = 0;
      this.high = Math.max(this.app.sharedHigh?.(this) ?? 0, most * 1.06, 1024);
    }
  }

  drawGrid(c, width) {
    const names = theme.names, step = sizeStep(this.high - this.low, Math.max(2, this.plotHeight / 46));
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (let v = Math.ceil(this.low / step) * step; v <= this.high; v += step) {
      const y = Math.round(this.yOf(v)) + 0.5;
      c.strokeStyle = names.faint;
      c.beginPath();
      c.moveTo(MARGIN.left, y);
      c.lineTo(width - MARGIN.right, y);
      c.stroke();
      c.fillStyle = names.soft;
      c.fillText(this.axisSize(v, step), MARGIN.left - 8, y);
    }
    c.textBaseline = "top";
    const [a, b] = this.window, fine = roundStep(b - a, this.plotWidth / 110);
    const along = this.app.axis === "time" ? fine : Math.max(1, fine);
    for (let v = Math.ceil(a / along) * along; v <= b; v += along) {
      const x = Math.round(this.xOf(v)) + 0.5, y = MARGIN.top + this.plotHeight;
      c.strokeStyle = names.faint;
      c.beginPath();
      c.moveTo(x, MARGIN.top);
      c.lineTo(x, y + 4);
      c.stroke();
      c.fillStyle = names.soft;
      c.textAlign = x > width - 60 ? "right" : "center";
      c.fillText(this.app.axis === "time" ? this.axisTime(v, along) : countText(v), Math.min(x, width - MARGIN.right), y + 7);
    }
  }
  // Enough digits that neighbouring labels differ.
  axisTime(ns, step) {
    const [scale, unit] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale) - 1e-9)));
    return `${(ns / scale).toFixed(digits)} ${unit}`;
  }
  axisSize(bytes, step) {
    if (bytes === 0) return "0";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = Math.min(4, Math.max(0, Math.floor(Math.log2(bytes) / 10)));
    // Steps are powers of two: a step of 1/8 needs three digits; below that the next unit reads better.
    while (unit > 0 && step < 1024 ** unit / 8) unit--;
    const scale = 1024 ** unit, digits = step >= scale ? 0 : Math.round(Math.log2(scale / step));
    return `${(bytes / scale).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${units[unit]}`;
  }

  // A band for each series; columns are one pixel wide.
  drawStack(c) {
    const { by, columns, least } = this.cols, count = this.run.seriesCount, left = MARGIN.left;
    const base = new Float64Array(columns);
    for (const s of this.order()) {
      const top = new Float64Array(columns);
      let any = false;
      for (let i = 0; i < columns; i++) {
        const bytes = by[i * count + s];
        top[i] = base[i] + bytes;
        any ||= bytes > 0;
      }
      if (any) {
        c.beginPath();
        for (let i = 0; i < columns; i++) this.step(c, left + i, this.yOf(top[i]), i === 0);
        for (let i = columns - 1; i >= 0; i--) {
          const y = this.yOf(base[i]);
          c.lineTo(left + i + 1, y);
          c.lineTo(left + i, y);
        }
        c.closePath();
        c.fillStyle = this.colour(s);
        c.fill();
      }
      base.set(top);
    }
    c.beginPath();
    for (let i = 0; i < columns; i++) this.step(c, left + i, this.yOf(least[i]), i === 0);
    c.strokeStyle = theme.dark ? "rgba(0,0,0,.45)" : "rgba(255,255,255,.75)";
    c.lineWidth = 1;
    c.stroke();
  }
  step(c, x, y, first) {
    if (first) c.moveTo(x, y);
    else c.lineTo(x, y);
    c.lineTo(x + 1, y);
  }
  // Search results are on top, the rest at the bottom.
  order() {
    const last = this.run.seriesCount - 1;
    return [last, ...Array(last).keys()];
  }
  colour(s) {
    const colour = seriesColour(s, this.app.series.labels);
    return this.app.lit >= 0 && this.app.lit !== s ? theme.names.quiet : colour;
  }

  // Draws every allocation in view separately.
  drawSingle(c, edges) {
    const run = this.run, from = edges[0], to = edges[edges.length - 1];
    const { moving, spanning, firstOp, lastOp } = run.livesWithin(from, to);
    this.rects = [];
    const left = MARGIN.left, right = left + this.plotWidth;
    spanning.sort((a, b) => run.colour[a] - run.colour[b] || run.size[b] - run.size[a]);
    let y = 0;
    for (const life of spanning) { // thin ones only add up
      this.rects.push({ life, x0: left, x1: right, y0: y, y1: y + run.size[life] });
      y += run.size[life];
    }
    const base = y, live = [], openAt = new Map();
    const xAt = (tick) => Math.min(right, Math.max(left, this.xOf(this.placeOf(tick))));
    const flush = (life, x) => {
      const open = openAt.get(life);
      if (open && x > open.x) this.rects.push({ life, x0: open.x, x1: x, y0: open.y, y1: open.y + run.size[life] });
    };
    for (const life of moving) if (life < run.before || run.start[life] < from) live.push(life);
    let top = base;
    for (const life of live) { openAt.set(life, { x: left, y: top }); top += run.size[life]; }
    for (let o = firstOp; o < lastOp; o++) {
      const life = run.opLife[o] >>> 1, x = xAt(run.opTick[o]);
      if (run.opLife[o] & 1) {
        const at = live.indexOf(life);
        if (at < 0) continue;
        flush(life, x);
        openAt.delete(life);
        live.splice(at, 1);
        for (let i = at; i < live.length; i++) { // those above sink
          const open = openAt.get(live[i]), sunk = open.y - run.size[life];
          flush(live[i], x);
          openAt.set(live[i], { x: Math.max(x, open.x), y: sunk });
        }
        top -= run.size[life];
      } else {
        live.push(life);
        openAt.set(life, { x, y: top });
        top += run.size[life];
      }
    }
    for (const life of live) flush(life, right);
    this.paintRects(c);
  }
  paintRects(c) {
    const edge = theme.names.card;
    for (const r of this.rects) {
      const y1 = this.yOf(r.y1), y0 = this.yOf(r.y0), tall = y0 - y1;
      if (y0 < MARGIN.top || y1 > MARGIN.top + this.plotHeight) continue;
      c.fillStyle = this.colour(this.run.colour[r.life]);
      c.fillRect(r.x0, y1, Math.max(1, r.x1 - r.x0), Math.max(0.3, tall));
      if (tall > 3) {
        c.fillStyle = edge;
        c.fillRect(r.x0, y1, Math.max(1, r.x1 - r.x0), 0.8);
        if (r.x1 - r.x0 > 4) c.fillRect(r.x1 - 0.8, y1, 0.8, tall);
      }
      if (r.life === this.app.picked?.life && this.run === this.app.picked.run) {
        c.strokeStyle = theme.names.ink;
        c.lineWidth = 2;
        c.strokeRect(r.x0 + 1, y1 + 1, Math.max(2, r.x1 - r.x0 - 2), Math.max(1, tall - 2));
        c.lineWidth = 1;
      }
      if (tall > 15 && r.x1 - r.x0 > 70) {
        c.fillStyle = "rgba(0,0,0,.78)";
        c.textAlign = "left";
        c.textBaseline = "middle";
        c.fillText(sizeText(this.run.size[r.life]), r.x0 + 6, (y0 + Math.max(y1, MARGIN.top)) / 2, r.x1 - r.x0 - 10);
      }
    }
  }

  drawNothing(c) {
    this.rects = [];
    c.fillStyle = theme.names.soft;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.font = "14px system-ui, sans-serif";
    c.fillText("The trace holds no allocation on this device.", MARGIN.left + this.plotWidth / 2, MARGIN.top + this.plotHeight / 2);
    c.font = "11px system-ui, sans-serif";
  }

  drawReserved(c) {
    c.beginPath();
    for (let i = 0; i < this.reserved.length; i++) this.step(c, MARGIN.left + i, this.yOf(this.reserved[i]), i === 0);
    c.strokeStyle = theme.names.reserved;
    c.lineWidth = 1.5;
    c.stroke();
    c.lineWidth = 1;
  }

  drawIterations(c) {
    const list = this.run.iterations.list;
    if (list.length === 0) return;
    c.fillStyle = theme.names.soft;
    c.textAlign = "center";
    c.textBaseline = "bottom";
    let lastX = -Infinity;
    const ticks = this.ticksShown;
    for (const it of list) {
      if (it.end < ticks[0] || it.start > ticks[1]) continue;
      const x0 = this.xOf(this.placeOf(it.start)), x1 = this.xOf(this.placeOf(it.end));
      if (x0 >= MARGIN.left && x0 - lastX > 4) {
        c.fillRect(Math.round(x0), MARGIN.top - 5, 1, 5);
        lastX = x0;
      }
      const middle = (Math.max(x0, MARGIN.left) + Math.min(x1, MARGIN.left + this.plotWidth)) / 2;
      if (x1 - x0 > 26) c.fillText(String(it.number), middle, MARGIN.top - 4);
    }
  }

  // Failures, the peak, the chosen moment, the pointer.
  drawMoments(c, height) {
    const names = theme.names, bottom = height - MARGIN.bottom;
    const line = (x, colour, width = 1, dash = []) => {
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(x, MARGIN.top);
      c.lineTo(x, bottom);
      c.stroke();
      c.setLineDash([]);
      c.lineWidth = 1;
    };
    const inside = (x) => x >= MARGIN.left - 1 && x <= MARGIN.left + this.plotWidth + 1;
    this.spots = [];
    for (const failure of this.run.failures) {
      const x = this.xOf(this.placeOf(failure.tick));
      if (!inside(x)) continue;
      line(x, names.bad, 1.5);
      c.fillStyle = names.bad;
      c.beginPath();
      c.moveTo(x - 5, MARGIN.top);
      c.lineTo(x + 5, MARGIN.top);
      c.lineTo(x, MARGIN.top + 8);
      c.fill();
      this.spots.push({ x, failure, tick: failure.tick });
    }
    const chosen = this.xOf(this.placeOf(this.run.chosen));
    if (inside(chosen)) {
      line(chosen, names.accent, 2);
      c.fillStyle = names.accent;
      c.beginPath();
      c.arc(chosen, bottom, 4.5, 0, 7);
      c.fill();
    }
    const peakX = this.xOf(this.placeOf(this.run.peakTick));
    if (inside(peakX) && this.run.peakBytes > 0) {
      const y = Math.max(MARGIN.top, this.yOf(this.run.peakBytes)), text = `peak ${sizeText(this.run.peakBytes)}`;
      c.font = "600 11px system-ui, sans-serif";
      const wide = c.measureText(text).width + 12, x = Math.min(Math.max(peakX - wide / 2, MARGIN.left), MARGIN.left + this.plotWidth - wide);
      const top = Math.max(MARGIN.top + 2, y - 22);
      c.fillStyle = names.ink;
      c.beginPath();
      c.roundRect(x, top, wide, 17, 4);
      c.fill();
      c.beginPath();
      c.arc(peakX, Math.max(y, MARGIN.top + 2), 3, 0, 7);
      c.fill();
      c.fillStyle = names.card;
      c.textAlign = "left";
      c.textBaseline = "middle";
      c.fillText(text, x + 6, top + 9);
      c.font = "11px system-ui, sans-serif";
      this.spots.push({ x: x + wide / 2, wide, top, peak: true, tick: this.run.peakTick });
    }
    if (this.hover && inside(this.hover.x)) line(Math.round(this.hover.x) + 0.5, names.soft, 1, [3, 3]);
  }

  drawOverview(c, width, height) {
    const run = this.run, w = Math.max(10, width - MARGIN.left - MARGIN.right), whole = this.window;
    this.window = [0, this.extent];
    const edges = this.edges(w);
    this.window = whole;
    const { most, columns } = run.columns(edges), high = Math.max(run.peakBytes, 1);
    c.fillStyle = theme.names.rest;
    for (let i = 0; i < columns; i++) {
      const tall = most[i] / high * (height - 4);
      c.fillRect(MARGIN.left + i, height - tall, 1, tall);
    }
    c.fillStyle = theme.names.bad;
    for (const f of run.failures) c.fillRect(MARGIN.left + this.placeOf(f.tick) / this.extent * w - 1, 0, 2, height);
    const x0 = MARGIN.left + whole[0] / this.extent * w, x1 = MARGIN.left + whole[1] / this.extent * w;
    c.fillStyle = theme.names.paper;
    c.globalAlpha = 0.72;
    c.fillRect(MARGIN.left, 0, x0 - MARGIN.left, height);
    c.fillRect(x1, 0, MARGIN.left + w - x1, height);
    c.globalAlpha = 1;
    c.strokeStyle = theme.names.accent;
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.75, 0.75, Math.max(3, x1 - x0 - 1.5), height - 1.5);
  }

  // ---- mouse ----
  place(event) {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  // Returns the tick under the pointer: the highest moment of its column.
  tickUnder(x) {
    const column = Math.min(this.cols.columns - 1, Math.max(0, Math.floor(x - MARGIN.left)));
    return Math.min(this.run.ticks - 1, Math.max(0, this.cols.mostTick[column]));
  }
  rectUnder(x, y) {
    if (!this.single) return null;
    for (let i = this.rects.length - 1; i >= 0; i--) {
      const r = this.rects[i];
      if (x >= r.x0 && x <= Math.max(r.x1, r.x0 + 1) && y >= this.yOf(r.y1) && y <= this.yOf(r.y0)) return r;
    }
    return null;
  }
  spotUnder(x, y) {
    return this.spots?.find((s) => (s.peak ? Math.abs(x - s.x) <= s.wide / 2 && y >= s.top && y <= s.top + 17 : Math.abs(x - s.x) <= GRAB && y < MARGIN.top + 14));
  }

  listen() {
    const element = this.canvas.element;
    let drag = null;
    element.addEventListener("pointerdown", (e) => {
      if (e.button !== 0) return;
      const [x] = this.place(e);
      drag = { x, window: [...this.window], moved: false, select: e.shiftKey };
      element.setPointerCapture(e.pointerId);
    });
    element.addEventListener("pointermove", (e) => {
      const [x, y] = this.place(e);
      if (drag && (drag.moved || Math.abs(x - drag.x) > 3)) {
        drag.moved = true;
        hideTip();
        if (!drag.select) {
          const by = (drag.x - x) / this.plotWidth * (drag.window[1] - drag.window[0]);
          this.window = drag.window;
          this.setWindow(drag.window[0] + by, drag.window[1] + by);
        }
        return;
      }
      this.hover = { x, y };
      this.canvas.redraw();
      this.tip(e, x, y);
    });
    const leave = () => { this.hover = null; hideTip(); this.canvas.redraw(); };
    element.addEventListener("pointerleave", leave);
    element.addEventListener("pointerup", (e) => {
      if (!drag) return;
      const [x, y] = this.place(e), was = drag;
      drag = null;
      this.app.activate(this.run);
      if (was.moved && was.select) {
        const a = this.valueAt(Math.min(was.x, x)), b = this.valueAt(Math.max(was.x, x));
        this.setWindow(a, b);
      } else if (!was.moved) {
        const spot = this.spotUnder(x, y), rect = spot ? null : this.rectUnder(x, y);
        if (rect) this.app.pick(this.run, rect.life);
        this.app.choose(this.run, spot ? spot.tick : this.tickUnder(x));
      }
    });
    element.addEventListener("dblclick", (e) => this.zoom(0.25, this.valueAt(this.place(e)[0])));
    element.addEventListener("wheel", (e) => {
      e.preventDefault();
      const unit = e.deltaMode === 1 ? 30 : 1;
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX * unit / this.plotWidth);
      else this.zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY * unit)) * 0.0022), this.valueAt(this.place(e)[0]));
    }, { passive: false });
    this.listenOverview();
  }
  listenOverview() {
    const element = this.overview.element;
    let from = null;
    const value = (e) => (this.place(e)[0] - MARGIN.left) / (element.clientWidth - MARGIN.left - MARGIN.right) * this.extent;
    element.addEventListener("pointerdown", (e) => {
      const v = value(e), [a, b] = this.window, whole = b - a >= this.extent * 0.999;
      from = { v, move: v >= a && v <= b && !whole, offset: v - a };
      element.setPointerCapture(e.pointerId);
      if (!from.move && !whole) this.setWindow(v - (b - a) / 2, v + (b - a) / 2);
    });
    element.addEventListener("pointermove", (e) => {
      if (!from) return;
      const v = value(e), length = this.window[1] - this.window[0];
      if (from.move) this.setWindow(v - from.offset, v - from.offset + length);
      else if (Math.abs(v - from.v) > this.extent / 300) this.setWindow(Math.min(v, from.v), Math.max(v, from.v));
    });
    element.addEventListener("pointerup", () => { from = null; });
  }

  tip(event, x, y) {
    if (x < MARGIN.left || x > MARGIN.left + this.plotWidth || !this.cols) return hideTip();
    const run = this.run, labels = this.app.series.labels, spot = this.spotUnder(x, y);
    if (spot?.failure) {
      return showTip(event, make("b", { class: "bad" }, "Out of memory"),
        make("p", {}, `${sizeText(spot.failure.asked)} asked at event ${countText(spot.tick)}, ${momentText(run.times[spot.tick])}`),
        spot.failure.deviceFree ? make("p", {}, `${sizeText(spot.failure.deviceFree)} free on the device, as reported to the program`) : null);
    }
    const rect = this.rectUnder(x, y);
    if (rect) return showTip(event, ...this.app.describe(run, rect.life));
    const tick = this.tickUnder(x), now = run.seriesAt(tick);
    const rows = [...now.keys()].filter((s) => now[s] > 0 && s < labels.length).sort((a, b) => now[b] - now[a]).slice(0, 6);
    const total = now.reduce((a, b) => a + b, 0);
    showTip(event,
      make("div", { class: "tip-head" }, make("b", {}, sizeText(total)), " live", run.reservedKnown ? make("span", {}, `, ${sizeText(run.reservedAt(tick))} reserved`) : null),
      make("p", { class: "soft" }, `event ${countText(tick)} · ${momentText(run.times[tick] ?? 0)}${run.host ? ` · ${sizeText(run.hostAt(run.times[tick] ?? 0))} host memory` : ""}`),
      make("div", { class: "tip-rows" }, rows.flatMap((s) => [swatch(seriesColour(s, labels)), siteLabel(labels[s]), make("span", { class: "number" }, sizeText(now[s]))])));
  }
}
