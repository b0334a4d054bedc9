// Flame: the live set at one moment by stack, outermost frame on top, width by bytes.
import { make, Canvas, showTip, hideTip, fill } from "./dom.js";
import { seriesColour, theme, tint } from "./theme.js";
import { countText, shareText, sizeText } from "./units.js";

const FLAME_ROW = 19;

export class FlameGraph {
  constructor(run, root, matched, labels) {
    this.run = run;
    this.labels = labels; // of the series of the chart
    this.root = root;
    this.focus = root;
    this.matched = matched;
    this.boxes = [];
    this.canvas = new Canvas("flame", `Flame graph of ${sizeText(root.bytes)} live`, (c, w) => this.draw(c, w));
    this.trail = make("div", { class: "trail" });
    this.element = make("div", {}, this.trail, this.canvas.element);
    this.listen();
    this.show(root);
  }
  depth(node) {
    let most = 0;
    for (const child of node.children.values()) if (child.bytes >= this.focus.bytes / 2000) most = Math.max(most, this.depth(child));
    return most + 1;
  }
  show(node) {
    this.focus = node;
    this.canvas.element.style.height = `${Math.max(3, this.depth(node)) * FLAME_ROW + 2}px`;
    const path = [];
    for (let n = node; n; n = n.parent) path.unshift(n);
    fill(this.trail, path.map((n, i) => make("button", { type: "button", onclick: () => this.show(n), disabled: n === node },
      i === 0 ? `all ${sizeText(n.bytes)}` : this.run.frameText(n.frame).name)));
    this.canvas.redraw();
  }
  draw(c, width) {
    this.boxes = [];
    c.font = "11.5px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.drawNode(c, this.focus, 0, width, 0);
  }
  // The colour its bytes have in the chart: full where they are all of one series, else that of most, paler.
  colour(node) {
    if (!node.parent) return { fill: theme.names.faint, ink: theme.names.ink };
    let most = 0, series = 0;
    for (const [s, bytes] of node.by) if (bytes > most) [most, series] = [bytes, s];
    return tint(seriesColour(series, this.labels), most >= node.bytes * 0.999 ? 0.85 : 0.4);
  }
  // The longest text that fits; the line is the last to go.
  label(c, text, room) {
    const line = text.line ? `:${text.line}` : "", fits = (t) => c.measureText(t).width <= room;
    const file = text.place.split("/").pop();
    for (const t of [`${text.name}  ${text.place}`, `${text.name}  ${file}`, `${text.name}${line}`]) if (fits(t)) return t;
    let name = text.name;
    while (name && !fits(`${name}…${line}`)) name = name.slice(0, -1);
    if (name || !line) return `${name}…${line}`;
    return fits(line) ? line : "";
  }
  drawNode(c, node, x, width, row) {
    if (width < 0.5) return;
    const y = row * FLAME_ROW, text = this.run.frameText(node.frame), names = theme.names;
    const hit = this.matched?.frames[node.frame], colour = this.colour(node);
    c.fillStyle = colour.fill;
    if (this.matched && node.parent) c.globalAlpha = hit ? 1 : 0.35;
    c.fillRect(x, y, Math.max(0.5, width - (width > 3 ? 1 : 0)), FLAME_ROW - 1);
    c.globalAlpha = 1;
    if (hit) {
      c.fillStyle = names.accent;
      c.fillRect(x, y + FLAME_ROW - 3, width - 1, 2);
    }
    this.boxes.push({ x, y, width, node });
    if (width > 34) {
      const label = node.parent ? this.label(c, text, width - 9) : "all that is live";
      c.save();
      c.beginPath();
      c.rect(x, y, width - 3, FLAME_ROW);
      c.clip();
      c.fillStyle = colour.ink;
      c.textAlign = "left";
      c.fillText(label, x + 5, y + FLAME_ROW / 2);
      if (width > 190) {
        const size = sizeText(node.bytes), room = c.measureText(label).width + 16;
        if (room + 60 < width) {
          c.textAlign = "right";
          c.fillText(size, x + width - 8, y + FLAME_ROW / 2);
        }
      }
      c.restore();
    }
    let at = x;
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      const wide = width * child.bytes / Math.max(1, node.bytes);
      this.drawNode(c, child, at, wide, row + 1);
      at += wide;
    }
  }
  under(event) {
    const box = this.canvas.element.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return this.boxes.find((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + FLAME_ROW)?.node;
  }
  listen() {
    const element = this.canvas.element;
    element.addEventListener("pointermove", (e) => {
      const node = this.under(e);
      if (!node) return hideTip();
      const text = this.run.frameText(node.frame);
      showTip(e, make("b", {}, node.parent ? text.name : "all that is live"),
        text.file && node.parent ? make("p", { class: "mono" }, `${text.file}:${text.line}`) : null,
        make("p", {}, `${sizeText(node.bytes)} in ${countText(node.count)} allocations, ${shareText(node.bytes, this.root.bytes)} of all`));
    });
    element.addEventListener("pointerleave", hideTip);
    element.addEventListener("click", (e) => {
      const node = this.under(e);
      if (node) this.show(node === this.focus && node.parent ? node.parent : node);
    });
    element.addEventListener("keydown", (e) => {
      if (e.key === "Backspace" && this.focus.parent) this.show(this.focus.parent);
    });
  }
}
