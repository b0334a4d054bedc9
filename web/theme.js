// Theme: light and dark, and the colours canvases draw with (taken from the style sheet, so that
// there is one place for them).

const SERIES_COLOURS = [
  "#4269d0", "#efb118", "#ff725c", "#3fb8a0", "#a463f2", "#3ca951", "#ff8ab7",
  "#7fa9f0", "#9c6b4e", "#c2a83e", "#2f8f9d", "#d0648f", "#7a8b2a", "#e08a3c",
];

export const theme = { names: {}, dark: false };

export function seriesColour(index, labels) {
  const label = labels[index];
  if (!label) return theme.names.quiet; // what a search does not match
  return label.rest ? theme.names.rest : SERIES_COLOURS[index % SERIES_COLOURS.length];
}

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "card", "ink", "soft", "faint", "line", "accent", "bad", "rest", "quiet", "hole", "reserved", "good", "host"])
    theme.names[name] = style.getPropertyValue("--" + name).trim();
  theme.dark = style.getPropertyValue("--dark").trim() === "1";
}

export function setTheme(which) {
  if (which) document.documentElement.dataset.theme = which;
  readTheme();
}

// Is the notebook around this page dark? null: there is none, or it may not be asked. JupyterLab and Notebook 7
// mark the body; VS Code and Colab have classes and an attribute; for any other page the background decides.
function notebookDark(around) {
  const body = around.body, html = around.documentElement;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (/vscode-(dark|high-contrast(?!-light))/.test(body.className)) return true;
  if (/vscode-light/.test(body.className)) return false;
  if (html.getAttribute("theme")) return html.getAttribute("theme") === "dark";
  for (const element of [body, html]) {
    const parts = getComputedStyle(element).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [];
    if (parts.length >= 3 && (parts[3] ?? 1) > 0.5) return parts[0] + parts[1] + parts[2] < 384;
  }
  return null;
}

// The document of the notebook that shows this page in a frame, or null.
function notebook() {
  try { return window.parent !== window && window.parent.document?.body ? window.parent.document : null; } catch { return null; }
}

export function startTheme(changed) {
  const media = matchMedia("(prefers-color-scheme: dark)"), around = notebook();
  let chosen = null; // by the reader; in a notebook only on this page, its own theme counts more
  try { if (!around) chosen = localStorage.getItem("stowage-theme"); } catch { /* a page from a file may have no storage */ }
  const follow = () => {
    const dark = chosen || !around ? null : notebookDark(around);
    if (chosen) setTheme(chosen);
    else if (dark !== null) setTheme(dark ? "dark" : "light");
    else setTheme(null);
  };
  follow();
  media.addEventListener("change", () => { readTheme(); changed(); });
  if (around) new MutationObserver(() => { follow(); changed(); }).observe(around.body, { attributes: true });
  return () => {
    const next = theme.dark ? "light" : "dark";
    chosen = next;
    setTheme(next);
    try { localStorage.setItem("stowage-theme", next); } catch { /* only not remembered */ }
    changed();
  };
}

// The colour of a series over the card, `strength` from 0 to 1, and the ink that is readable on it.
export function tint(colour, strength) {
  const parse = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const card = parse(theme.names.card), mixed = parse(colour).map((value, i) => Math.round(value * strength + card[i] * (1 - strength)));
  const light = mixed.map((v) => ((v / 255 + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  return { fill: `rgb(${mixed.join(" ")})`, ink: light > 0.2 ? "#15181c" : "#f4f5f6" };
}
