// Dom: making elements. Text goes in as text nodes only, never as markup: names come from traces.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null));
}

export function swatch(colour) {
  const element = make("span", { class: "swatch", "aria-hidden": "true" });
  element.style.backgroundColor = colour;
  return element;
}

// A row of buttons of which one is chosen.
export function choices(element, options, chosen, choose) {
  fill(element, options.map(([value, label, title]) =>
    make("button", { type: "button", title, "aria-pressed": String(value === chosen), onclick: () => choose(value), "data-value": value }, label)));
}

// A number with a bar behind it, as wide as its share.
export function barCell(text, share, colour) {
  const bar = make("span", { class: "bar-fill", "aria-hidden": "true" });
  bar.style.width = `${Math.max(0, Math.min(100, share * 100))}%`;
  if (colour) bar.style.backgroundColor = colour;
  return make("div", { class: "bar-cell" }, bar, make("span", {}, text));
}

// A call site, tag or size; brief: the file without its folders, if space is short.
export function siteLabel(label, brief = false) {
  const place = brief ? label.place.split("/").pop() : label.place;
  const where = place ? make("span", { class: "place" }, make("bdi", { dir: "ltr" }, place)) : null;
  // A long place loses its beginning; this much of its end always shows: the line.
  if (where) where.style.minWidth = `${Math.min(place.length, String(label.line ?? "").length + 8)}ch`;
  return make("span", { class: "site", title: label.file ? `${label.name}  ${label.file}:${label.line}` : null }, make("b", {}, label.name), where ? [" ", where] : null);
}

// columns: {title, number, cell(row) → text or element, raw(row) → what a CSV has, if not the text of the cell}. Rows
// come sorted. The element has csv(), which returns all rows.
export function table(columns, rows, { onpick, picked, caption, limit = 500 } = {}) {
  const head = make("tr", {}, columns.map((c) => make("th", { class: c.number ? "number" : "", scope: "col" }, c.title)));
  const body = rows.slice(0, limit).map((row) => {
    const line = make("tr", { class: picked?.(row) ? "picked" : "" }, columns.map((c) => make("td", { class: c.number ? "number" : c.class ?? "" }, c.cell(row))));
    if (onpick) {
      line.tabIndex = 0;
      line.classList.add("pickable");
      line.addEventListener("click", () => onpick(row));
      line.addEventListener("keydown", (e) => { if (e.key === "Enter") onpick(row); });
    }
    return line;
  });
  const text = (cell) => (cell instanceof Node ? cell.textContent : String(cell ?? ""));
  const shown = columns.filter((c) => c.title);
  const element = make("div", { class: "scroll" },
    make("table", {}, caption ? make("caption", {}, caption) : null, make("thead", {}, head), make("tbody", {}, body)),
    rows.length > limit ? make("p", { class: "more" }, `The ${limit} largest of ${rows.length.toLocaleString("en-US")}.`) : null);
  element.csv = () => [shown.map((c) => c.title), ...rows.map((row) => shown.map((c) => (c.raw ? c.raw(row) : text(c.cell(row)))))];
  return element;
}

export function empty(title, text) {
  return make("div", { class: "empty" }, make("b", {}, title), make("p", {}, text));
}

// A canvas that fills its box and stays sharp; draw(context, width, height) in CSS pixels.
export class Canvas {
  constructor(className, label, draw) {
    this.element = make("canvas", { class: className, tabindex: "0", role: "img", "aria-label": label });
    this.draw = draw;
    this.frame = 0;
    new ResizeObserver(() => this.redraw()).observe(this.element);
  }
  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const { clientWidth: width, clientHeight: height } = this.element, ratio = devicePixelRatio || 1;
      if (!width || !height) return;
      const w = Math.round(width * ratio), h = Math.round(height * ratio);
      if (this.element.width !== w || this.element.height !== h) {
        this.element.width = w;
        this.element.height = h;
      }
      const context = this.element.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      this.draw(context, width, height);
    });
  }
}

// ---- the tooltip ----
export function showTip(event, ...content) {
  const tip = byId("tip");
  fill(tip, ...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const y = Math.min(event.clientY + 14, innerHeight - height - 8);
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}

export function facts(rows) {
  return make("dl", {}, rows.filter(Boolean).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}
