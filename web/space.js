// Space: the address space at one moment. Shows all reserved memory, segment by segment in address
// order, in lines like text; live blocks have the colours of the chart, holes are hatched.
import { make, Canvas, showTip, hideTip, fill } from "./dom.js";
import { seriesColour, theme } from "./theme.js";
import { addressText, countText, shareText, sizeText } from "./units.js";

const SPACE_ROW = 16, SPACE_GAP = 4, SPACE_ROWS = 20;

export class AddressSpace {
  constructor(app, run, tick) {
    this.app = app;
    this.run = run;
    const { regions, stray } = run.regions(tick);
    this.regions = regions;
    this.holes = run.holes(regions);
    this.stray = stray;
    let at = 0;
    for (const region of regions) {
      region.offset = at;
      at += region.bytes;
    }
    this.total = at;
    this.window = [0, Math.max(1, at)];
    this.canvas = new Canvas("space", "", (c, w, h) => this.draw(c, w, h));
    this.canvas.element.style.height = `${SPACE_ROWS * (SPACE_ROW + SPACE_GAP)}px`;
    this.note = make("p", { class: "soft" });
    this.element = make("div", {}, this.summary(), this.canvas.element, this.note);
    this.listen();
    this.say();
  }
  summary() {
    const live = this.regions.reduce((sum, r) => sum + r.live, 0), free = this.holes.reduce((sum, h) => sum + h.bytes, 0);
    const largest = this.holes[0]?.bytes ?? 0, idle = this.regions.filter((r) => r.lives.length === 0);
    const idleBytes = idle.reduce((sum, r) => sum + r.bytes, 0);
    const fact = (name, value, more) => make("div", { class: "fact" }, make("span", {}, name), make("b", {}, value), more ? make("em", {}, more) : null);
    this.canvas.element.setAttribute("aria-label", `Address space: ${sizeText(this.total)} reserved, ${sizeText(live)} live, ${sizeText(free)} free in ${this.holes.length} holes, the largest ${sizeText(largest)}`);
    return make("div", { class: "facts small" },
      fact(this.run.reservedKnown ? "reserved" : "spanned", sizeText(this.total), `${countText(this.regions.length)} ${this.run.reservedKnown ? "segments" : "stretches"}`),
      fact("live", sizeText(live), shareText(live, this.total)),
      fact("free in holes", sizeText(free), `${countText(this.holes.length)} holes, ${shareText(free, this.total)}`),
      fact("largest hole", sizeText(largest), "the most one request could reuse"),
      fact("segments wholly free", sizeText(idleBytes), `${countText(idle.length)} could go back to the driver`));
  }
  say() {
    const whole = this.window[1] - this.window[0] >= this.total * 0.999;
    fill(this.note, `Each line is ${sizeText((this.window[1] - this.window[0]) / SPACE_ROWS)} of addresses${whole ? "" : `, ${sizeText(this.window[1] - this.window[0])} of ${sizeText(this.total)} shown`}. Scroll to zoom, drag to move, double-click for all.`,
      this.stray ? ` ${countText(this.stray)} live allocations lie outside every known segment.` : null,
      this.run.reservedKnown ? null : " This trace says nothing of segments: what is spanned by live allocations is shown.");
  }
  // Draws [from, to) of the laid-out bytes, over as many lines as it takes.
  bar(c, from, to, width, colour, inset = 0) {
    const [a, b] = this.window, perRow = (b - a) / SPACE_ROWS;
    const first = Math.max(from, a), last = Math.min(to, b);
    if (last <= first) return;
    for (let row = Math.floor((first - a) / perRow); row < SPACE_ROWS; row++) {
      const rowStart = a + row * perRow, x0 = Math.max(0, (first - rowStart) / perRow) * width;
      const x1 = Math.min(1, (last - rowStart) / perRow) * width;
      if (rowStart >= last) break;
      c.fillStyle = colour;
      c.fillRect(x0, row * (SPACE_ROW + SPACE_GAP) + inset, Math.max(x1 - x0 - (x1 - x0 > 3 ? 0.8 : 0), 0.4), SPACE_ROW - 2 * inset);
    }
  }
  draw(c, width) {
    const names = theme.names, labels = this.app.series.labels;
    const hatch = this.hatch(c);
    for (const region of this.regions) {
      if (region.offset + region.bytes < this.window[0] || region.offset > this.window[1]) continue;
      this.bar(c, region.offset, region.offset + region.bytes, width, hatch);
      for (const life of region.lives) {
        const from = region.offset + this.run.address(life) - region.address;
        this.bar(c, from, from + this.run.size[life], width, seriesColour(this.run.colour[life], labels));
        if (this.app.picked?.run === this.run && this.app.picked.life === life) this.bar(c, from, from + this.run.size[life], width, names.ink, 4);
      }
    }
    const perRow = (this.window[1] - this.window[0]) / SPACE_ROWS;
    c.fillStyle = names.ink;
    let last = -Infinity;
    for (const region of this.regions) { // where a segment begins; not where they are too small to see
      const row = Math.floor((region.offset - this.window[0]) / perRow);
      if (row < 0 || row >= SPACE_ROWS) continue;
      const x = (region.offset - this.window[0] - row * perRow) / perRow * width;
      if (row * width + x - last < 5) continue;
      last = row * width + x;
      c.fillRect(x, row * (SPACE_ROW + SPACE_GAP) - 2, 1, SPACE_ROW + 4);
    }
  }
  hatch(c) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const t = tile.getContext("2d");
    t.fillStyle = theme.names.hole;
    t.fillRect(0, 0, 6, 6);
    t.strokeStyle = theme.names.line;
    t.beginPath();
    for (const d of [-6, 0, 6]) { t.moveTo(d, 6); t.lineTo(d + 6, 0); }
    t.stroke();
    return c.createPattern(tile, "repeat");
  }
  offsetUnder(event) {
    const box = this.canvas.element.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / (SPACE_ROW + SPACE_GAP)), [a, b] = this.window;
    if (row < 0 || row >= SPACE_ROWS) return -1;
    return a + (b - a) / SPACE_ROWS * (row + (event.clientX - box.left) / box.width);
  }
  under(offset) {
    const region = this.regions.find((r) => offset >= r.offset && offset < r.offset + r.bytes);
    if (!region) return null;
    const address = region.address + offset - region.offset;
    const life = region.lives.find((l) => address >= this.run.address(l) && address < this.run.address(l) + this.run.size[l]);
    const hole = life === undefined ? this.holes.find((h) => address >= h.address && address < h.address + h.bytes) : null;
    return { region, address, life, hole };
  }
  setWindow(from, length) {
    length = Math.min(this.total, Math.max(4096, length));
    from = Math.min(Math.max(0, from), this.total - length);
    this.window = [from, from + length];
    this.say();
    this.canvas.redraw();
  }
  listen() {
    const element = this.canvas.element;
    let drag = null;
    element.addEventListener("wheel", (e) => {
      e.preventDefault();
      const at = this.offsetUnder(e), [a, b] = this.window, factor = Math.exp(Math.max(-200, Math.min(200, e.deltaY)) * 0.0022);
      const length = Math.min(this.total, Math.max(4096, (b - a) * factor));
      this.setWindow(at - (at - a) / (b - a) * length, length);
    }, { passive: false });
    element.addEventListener("pointerdown", (e) => { drag = { at: this.offsetUnder(e), moved: false }; element.setPointerCapture(e.pointerId); });
    element.addEventListener("pointermove", (e) => {
      const offset = this.offsetUnder(e);
      if (drag && Math.abs(offset - drag.at) > (this.window[1] - this.window[0]) / SPACE_ROWS / 100) {
        drag.moved = true;
        this.setWindow(this.window[0] + drag.at - offset, this.window[1] - this.window[0]);
        return hideTip();
      }
      const under = this.under(offset);
      if (!under) return hideTip();
      if (under.life !== undefined) showTip(e, ...this.app.describe(this.run, under.life));
      else showTip(e, make("b", {}, under.hole ? `Hole of ${sizeText(under.hole.bytes)}` : "Rounding of a block"),
        make("p", {}, `in a segment of ${sizeText(under.region.bytes)}, ${shareText(under.region.live, under.region.bytes)} of it live`),
        make("p", { class: "mono soft" }, addressText(under.hole?.address ?? under.address)));
    });
    element.addEventListener("pointerleave", hideTip);
    element.addEventListener("pointerup", (e) => {
      const under = drag && !drag.moved ? this.under(this.offsetUnder(e)) : null;
      drag = null;
      if (under?.life !== undefined) this.app.pick(this.run, under.life);
    });
    element.addEventListener("dblclick", () => this.setWindow(0, this.total));
    element.addEventListener("keydown", (e) => {
      const [a, b] = this.window, length = b - a, middle = (a + b) / 2;
      if (e.key === "+" || e.key === "=") this.setWindow(middle - length / 4, length / 2);
      else if (e.key === "-") this.setWindow(middle - length, length * 2);
      else if (e.key === "ArrowRight" || e.key === "ArrowDown") this.setWindow(a + length / SPACE_ROWS, length);
      else if (e.key === "ArrowLeft" || e.key === "ArrowUp") this.setWindow(a - length / SPACE_ROWS, length);
      else return;
      e.preventDefault();
      e.stopPropagation();
    });
  }
}
