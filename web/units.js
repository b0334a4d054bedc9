// Units: numbers as people read them. Used by every other module.

const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// One digit after the point, halves to even as C's printf does: page and terminal agree.
function tenths(value) {
  const scaled = value * 10, down = Math.floor(scaled), half = scaled - down;
  return ((half > 0.5 || (half === 0.5 && down % 2) ? down + 1 : down) / 10).toFixed(1);
}

// 1536 → "1.5 KiB"; the same text as the command prints.
export function sizeText(bytes) {
  const sign = bytes < 0 ? "−" : "";
  let value = Math.abs(bytes), unit = 0;
  while (value >= 1023.95 && unit < SIZE_UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  if (unit === 0) return `${sign}${Math.round(value)} B`;
  return `${sign}${tenths(value)} ${SIZE_UNITS[unit]}`;
}

export function signedSizeText(bytes) {
  return bytes > 0 ? "+" + sizeText(bytes) : bytes < 0 ? sizeText(bytes) : "0 B";
}

export function countText(n) {
  return Math.round(n).toLocaleString("en-US");
}

// Nanoseconds since the trace began, with digits that fit the span shown.
export function timeText(ns, span = ns) {
  if (span >= 2e9) return (ns / 1e9).toFixed(span >= 2e11 ? 0 : span >= 2e10 ? 1 : 2) + " s";
  if (span >= 2e6) return (ns / 1e6).toFixed(span >= 2e8 ? 0 : span >= 2e7 ? 1 : 2) + " ms";
  return (ns / 1e3).toFixed(span >= 2e5 ? 0 : 1) + " µs";
}

// A moment, with enough digits to distinguish neighbouring events.
export function momentText(ns) {
  return ns >= 1e9 ? (ns / 1e9).toFixed(4) + " s" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(1) + " µs";
}

export function shareText(part, whole) {
  return whole > 0 ? (100 * part / whole).toFixed(1) + "%" : "–";
}

export function addressText(address) {
  return "0x" + address.toString(16);
}

// Round steps for an axis of bytes: powers of two times 1, 2, 4, … of a unit.
export function sizeStep(range, ticks) {
  let step = 2 ** Math.ceil(Math.log2(Math.max(1, range / ticks)));
  return step;
}

export function roundStep(range, ticks) {
  const raw = Math.max(range / ticks, 1e-9), power = 10 ** Math.floor(Math.log10(raw));
  for (const m of [1, 2, 5, 10]) if (m * power >= raw) return m * power;
  return 10 * power;
}

export function shortFile(file) {
  const packages = file.lastIndexOf("-packages/");
  if (packages >= 0) return file.slice(packages + 10);
  const parts = file.split("/");
  return parts.length > 3 ? "…/" + parts.slice(-2).join("/") : file;
}
