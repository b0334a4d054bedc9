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
  for (const name of ["paper", "card", "ink", "soft", "faint", "line", "accent", "bad", "rest", "quiet", "hole", "reserved", "good"])
    theme.names[name] = style.getPropertyValue("--" + name).trim();
  theme.dark = style.getPropertyValue("--dark").trim() === "1";
}

export function setTheme(which) {
  if (which) document.documentElement.dataset.theme = which;
  readTheme();
}

export function startTheme(changed) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("stowage-theme"); } catch { /* a page from a file may have no storage */ }
  setTheme(chosen);
  media.addEventListener("change", () => { readTheme(); changed(); });
  return () => {
    const next = theme.dark ? "light" : "dark";
    setTheme(next);
    try { localStorage.setItem("stowage-theme", next); } catch { /* only not remembered */ }
    changed();
  };
}

// A steady muted colour for a text: the same file is the same colour everywhere.
export function textColour(text, dark) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  const hue = (hash >>> 0) % 360;
  return dark ? `hsl(${hue} 26% 33%)` : `hsl(${hue} 52% 84%)`;
}
