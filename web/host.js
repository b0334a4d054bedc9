// Host: the host memory of the run, drawn under the chart of a device with the same horizontal axis.
import { make, Canvas, showTip, hideTip } from "./dom.js";
import { firstAtLeast } from "./model.js";
import { theme } from "./theme.js";
import { momentText, sizeText } from "./units.js";

export const MARGIN = { left: 74, right: 14, top: 22, bottom: 26 }; // of the charts; the lines of both meet

export class HostChart {
  // chart: the TimeChart above; its window and its edges are used.
  constructor(chart) {
    this.chart = chart;
    this.run = chart.run;
    this.alone = this.run.lives === 0; // no device memory: this is the only chart
    this.canvas = new Canvas(this.alone ? "host tall" : "host", `Host memory over time, at most ${sizeText(this.run.host.peak)}`, (c, w, h) => this.draw(c, w, h));
    this.element = this.canvas.element;
    this.listen();
  }
  redraw() {
    this.canvas.redraw();
  }
  // The most bytes in each column; a sample holds until the next one.
  columns(width) {
    const { times, bytes } = this.run.host, edges = this.chart.edges(width), count = edges.length - 1, out = new Float64Array(count);
    const at = (edge) => (this.chart.app.axis === "time" ? edge : this.run.times[Math.min(this.run.ticks - 1, Math.max(0, Math.floor(edge)))]);
    const [a, b] = this.chart.window;
    const timeOf = (c) => (this.chart.app.axis === "time" ? a + (b - a) * c / count : at(edges[c]));
    for (let c = 0; c < count; c++) {
      const from = timeOf(c), to = Math.max(timeOf(c + 1), from);
      let i = Math.max(0, firstAtLeast(times, from + 1) - 1);
      out[c] = times.length && times[i] <= to ? bytes[i] : 0;
      for (i++; i < times.length && times[i] < to; i++) out[c] = Math.max(out[c], bytes[i]);
    }
    return out;
  }
  draw(c, width, height) {
    const { names } = theme, host = this.run.host, top = 16, bottom = this.alone ? 20 : 4;
    const wide = Math.max(10, width - MARGIN.left - MARGIN.right), tall = Math.max(10, height - top - bottom);
    const columns = this.columns(wide), most = Math.max(host.peak, ...columns, 1), near = host.limit > 0 && host.limit <= most * 2;
    const high = Math.max(most, near ? host.limit : 0) * 1.06, y = (bytes) => top + tall * (1 - bytes / high);
    this.high = high;
    c.font = "11px system-ui, sans-serif";
    c.beginPath();
    c.moveTo(MARGIN.left, top + tall);
    for (let i = 0; i < columns.length; i++) {
      c.lineTo(MARGIN.left + i, y(columns[i]));
      c.lineTo(MARGIN.left + i + 1, y(columns[i]));
    }
    c.lineTo(MARGIN.left + columns.length, top + tall);
    c.closePath();
    c.fillStyle = names.host;
    c.globalAlpha = 0.5;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = names.host;
    c.stroke();
    if (near) {
      c.strokeStyle = names.bad;
      c.setLineDash([5, 4]);
      c.beginPath();
      c.moveTo(MARGIN.left, y(host.limit));
      c.lineTo(MARGIN.left + wide, y(host.limit));
      c.stroke();
      c.setLineDash([]);
    }
    c.strokeStyle = names.line;
    c.strokeRect(MARGIN.left + 0.5, top + 0.5, wide - 1, tall - 1);
    c.fillStyle = names.soft;
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillText(sizeText(most), MARGIN.left - 8, Math.max(top + 5, y(most)));
    c.fillText("0", MARGIN.left - 8, top + tall - 4);
    c.textAlign = "left";
    c.textBaseline = "bottom";
    c.fillText(`Host memory of the run${host.limit ? `, limit ${sizeText(host.limit)}` : ""}`, MARGIN.left, top - 2);
    if (this.alone) this.drawTimes(c, wide, top + tall);
    const chosen = MARGIN.left + (this.chart.placeOf(this.run.chosen) - this.chart.window[0]) / (this.chart.window[1] - this.chart.window[0]) * wide;
    if (chosen >= MARGIN.left && chosen <= MARGIN.left + wide) {
      c.fillStyle = names.accent;
      c.fillRect(chosen - 1, top, 2, tall);
    }
  }
  drawTimes(c, wide, y) {
    c.textBaseline = "top";
    for (let i = 0; i <= 4; i++) {
      c.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
      const [a, b] = this.chart.window;
      c.fillText(this.chart.placeText(a + (b - a) * i / 4), MARGIN.left + wide * i / 4, y + 5);
    }
  }
  listen() {
    this.element.addEventListener("pointermove", (e) => {
      const box = this.element.getBoundingClientRect(), wide = box.width - MARGIN.left - MARGIN.right;
      const share = (e.clientX - box.left - MARGIN.left) / wide, [a, b] = this.chart.window;
      if (share < 0 || share > 1) return hideTip();
      const place = a + (b - a) * share, time = this.chart.app.axis === "time" ? place : this.run.times[Math.min(this.run.ticks - 1, Math.floor(place))];
      showTip(e, make("b", {}, sizeText(this.run.hostAt(time))), " host memory", make("p", { class: "soft" }, momentText(Math.max(0, time))));
    });
    this.element.addEventListener("pointerleave", hideTip);
    this.element.addEventListener("click", (e) => {
      const box = this.element.getBoundingClientRect(), [a, b] = this.chart.window;
      const place = a + (b - a) * (e.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
      this.chart.app.choose(this.run, this.chart.tickAt(place));
    });
  }
}
