// Model: the queries of the views on one run. Nothing here draws.
import { OPEN } from "./data.js";
import { countText, shortFile } from "./units.js";

const BIN = 256; // operations summed up as one
export const SERIES_MAX = 14; // groups with their own colour; the rest is one series

const FRAMEWORK = /-packages\/torch\/|^torch\/|\/torch\/csrc\/|\/aten\/src\/|\/c10\/|libtorch|libc10|^<frozen |^\?\?$|^$/;
const STANDARD = /lib\/python3/;

// A frame that represents combined allocations.
const REST_FRAME = -1;

const SIZE_CLASSES = [
  [4096, "under 4 KiB"], [65536, "4 KiB to 64 KiB"], [2 ** 20, "64 KiB to 1 MiB"],
  [10 * 2 ** 20, "1 MiB to 10 MiB"], [100 * 2 ** 20, "10 MiB to 100 MiB"],
  [2 ** 30, "100 MiB to 1 GiB"], [Infinity, "1 GiB and more"],
];

// First index in the ascending array whose value is at least `value`.
export function firstAtLeast(array, value, low = 0, high = array.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Run {
  constructor(data) {
    Object.assign(this, data);
    this.hasStacks = this.nodeParent.length > 1;
    this.hasTags = this.tags.some((tag) => tag !== 0);
    this.lastTime = this.times[this.times.length - 1];
    this.buildTotals();
    this.buildReserved();
  }

  // ---- texts ----
  frameText(frame) {
    if (frame === REST_FRAME) return { name: this.restName(), file: "", line: 0, place: "" };
    if (!frame) return { name: "no stack recorded", file: "", line: 0, place: "" };
    const at = (frame - 1) * 3, file = this.texts[this.frames[at + 1]];
    const line = this.frames[at + 2];
    return { name: this.texts[this.frames[at]], file, line, place: line ? `${shortFile(file)}:${line}` : shortFile(file) };
  }
  restName() {
    return `${countText(this.notes.together)} small or short ones together`;
  }
  isFramework(frame) {
    if (frame === REST_FRAME) return false;
    const file = this.texts[this.frames[(frame - 1) * 3 + 1]];
    return FRAMEWORK.test(file) || (STANDARD.test(file) && !file.includes("-packages/"));
  }
  // The leaf of a lifetime's stack.
  nodeOf(life) {
    return this.isRest[life] ? REST_FRAME : this.stackNode[this.stackOf[life]];
  }
  // Frames of a node, innermost first.
  stackFrames(node) {
    if (node === REST_FRAME) return [REST_FRAME];
    const frames = [];
    for (let n = node; n !== 0; n = this.nodeParent[n]) frames.push(this.nodeFrame[n]);
    return frames;
  }
  address(life) {
    return this.addresses[this.addressIndex[life]];
  }

  // ---- groups: what the stacked chart is stacked by ----
  groupings() {
    const all = [];
    if (this.hasStacks) all.push("site");
    if (this.hasTags) all.push("tag");
    all.push("size");
    return all;
  }
  // For each lifetime a group number, and for each group a label {name, place}.
  group(by) {
    this.groupCache ??= new Map();
    if (this.groupCache.has(by)) return this.groupCache.get(by);
    const of = new Uint32Array(this.lives);
    let labels;
    if (by === "site") {
      labels = this.sites.map((frame) => this.frameText(frame));
      for (let i = 0; i < this.lives; i++) of[i] = this.stackSite[this.stackOf[i]];
    } else if (by === "tag") {
      labels = this.tags.map((text) => ({ name: text ? this.texts[text] : "no tag", place: "" }));
      for (let i = 0; i < this.lives; i++) of[i] = this.tagOf[i];
    } else {
      labels = SIZE_CLASSES.map(([, name]) => ({ name, place: "" }));
      for (let i = 0; i < this.lives; i++) {
        let c = 0;
        while (this.size[i] >= SIZE_CLASSES[c][0]) c++;
        of[i] = c;
      }
    }
    if (this.notes.together) {
      for (let i = 0; i < this.lives; i++) if (this.isRest[i]) of[i] = labels.length;
      labels.push({ name: this.restName(), place: "" });
    }
    const most = this.mostOf(of, labels.length);
    const made = { by, of, labels, most, keys: labels.map((l) => `${l.name}\n${l.place}`) };
    this.groupCache.set(by, made);
    return made;
  }
  // The peak bytes of each group.
  mostOf(of, count) {
    const now = new Float64Array(count), most = new Float64Array(count);
    for (let i = 0; i < this.before; i++) most[of[i]] = now[of[i]] += this.size[i];
    for (let o = 0; o < this.ops; o++) {
      const op = this.opLife[o], life = op >>> 1, g = of[life];
      if (op & 1) now[g] -= this.size[life];
      else if ((now[g] += this.size[life]) > most[g]) most[g] = now[g];
    }
    return most;
  }

  // ---- sums ----
  buildTotals() {
    const bins = Math.ceil(this.ops / BIN);
    this.binMost = new Float64Array(bins);
    this.binLeast = new Float64Array(bins);
    this.binMostOp = new Uint32Array(bins);
    this.binStart = new Float64Array(bins + 1);
    let live = 0;
    for (let i = 0; i < this.before; i++) live += this.size[i];
    this.liveBefore = live;
    for (let b = 0; b < bins; b++) {
      this.binStart[b] = live;
      let most = -1, least = Infinity, at = b * BIN;
      for (let o = b * BIN; o < Math.min(this.ops, (b + 1) * BIN); o++) {
        const op = this.opLife[o], bytes = this.size[op >>> 1];
        live += op & 1 ? -bytes : bytes;
        if (live > most) { most = live; at = o; }
        if (live < least) least = live;
      }
      this.binMost[b] = most;
      this.binLeast[b] = least;
      this.binMostOp[b] = at;
    }
    this.binStart[bins] = live;
  }
  buildReserved() {
    const changes = [];
    for (const e of this.extents) {
      changes.push([e.start, e.bytes]);
      if (e.end !== OPEN) changes.push([e.end, -e.bytes]);
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    this.reservedTick = new Float64Array(changes.length);
    this.reservedBytes = new Float64Array(changes.length);
    let now = 0;
    changes.forEach(([tick, bytes], i) => {
      now += bytes;
      this.reservedTick[i] = tick;
      this.reservedBytes[i] = now;
    });
  }
  // The operations done once event `tick` has happened.
  opsUntil(tick) {
    return firstAtLeast(this.opTick, tick + 1);
  }
  liveAt(tick) {
    const ops = this.opsUntil(tick);
    const bin = Math.floor(ops / BIN);
    let live = this.binStart[bin];
    for (let o = bin * BIN; o < ops; o++) {
      const op = this.opLife[o], bytes = this.size[op >>> 1];
      live += op & 1 ? -bytes : bytes;
    }
    return live;
  }
  // Host memory at a time in nanoseconds: that of the last sample before it.
  hostAt(time) {
    const i = firstAtLeast(this.host.times, time + 1) - 1;
    return this.host.bytes[Math.max(0, i)];
  }
  hostPeakTick() {
    const time = this.host.times[this.host.bytes.indexOf(Math.max(...this.host.bytes))];
    return Math.min(this.ticks - 1, firstAtLeast(this.times, time));
  }
  reservedAt(tick) {
    const i = firstAtLeast(this.reservedTick, tick + 1) - 1;
    return i >= 0 ? this.reservedBytes[i] : 0;
  }
  // Numbers of the lifetimes live at a tick.
  livesAt(tick) {
    const out = [];
    const last = this.lives;
    for (let i = 0; i < last; i++) {
      if (i >= this.before && this.start[i] > tick) break;
      if (this.end[i] > tick) out.push(i);
    }
    return out;
  }

  // ---- the stacked chart ----
  // `colour` gives each lifetime its series; sums by series at each bin's start and at its most.
  setSeries(colour, count) {
    this.colour = colour;
    this.seriesCount = count;
    const bins = this.binMost.length;
    this.startBy = new Float64Array((bins + 1) * count);
    this.mostBy = new Float64Array(bins * count);
    const now = new Float64Array(count);
    for (let i = 0; i < this.before; i++) now[colour[i]] += this.size[i];
    for (let b = 0; b < bins; b++) {
      this.startBy.set(now, b * count);
      const at = this.binMostOp[b];
      for (let o = b * BIN; o < Math.min(this.ops, (b + 1) * BIN); o++) {
        const op = this.opLife[o], life = op >>> 1;
        if (op & 1) now[colour[life]] -= this.size[life];
        else now[colour[life]] += this.size[life];
        if (o === at) this.mostBy.set(now, b * count);
      }
    }
    this.startBy.set(now, bins * count);
  }
  seriesAfter(ops) {
    const count = this.seriesCount, bin = Math.floor(ops / BIN);
    const now = this.startBy.slice(bin * count, (bin + 1) * count);
    for (let o = bin * BIN; o < ops; o++) {
      const op = this.opLife[o], life = op >>> 1;
      now[this.colour[life]] += op & 1 ? -this.size[life] : this.size[life];
    }
    return now;
  }
  seriesAt(tick) {
    return this.seriesAfter(this.opsUntil(tick));
  }
  // For columns between the given ticks (edges ascending, one more than columns): by series the
  // bytes at the column's highest moment, that moment, and the least total. No peak is ever lost.
  columns(edges) {
    const columns = edges.length - 1, count = this.seriesCount;
    const by = new Float64Array(columns * count), most = new Float64Array(columns);
    const least = new Float64Array(columns), mostTick = new Float64Array(columns);
    const firstOp = firstAtLeast(this.opTick, edges[0]), lastOp = firstAtLeast(this.opTick, edges[columns]);
    if ((lastOp - firstOp) / columns >= 2 * BIN) this.columnsFromBins(edges, firstOp, by, most, least, mostTick);
    else this.columnsFromOps(edges, firstOp, by, most, least, mostTick);
    return { by, most, least, mostTick, columns };
  }
  columnsFromOps(edges, firstOp, by, most, least, mostTick) {
    const count = this.seriesCount, now = this.seriesAfter(firstOp);
    let total = 0;
    for (const bytes of now) total += bytes;
    let o = firstOp;
    for (let c = 0; c < most.length; c++) {
      most[c] = least[c] = total;
      mostTick[c] = Math.max(0, Math.ceil(edges[c]) - 1);
      by.set(now, c * count);
      const end = edges[c + 1];
      for (let first = true; o < this.ops && this.opTick[o] < end; o++) {
        const op = this.opLife[o], life = op >>> 1, bytes = this.size[life], s = this.colour[life];
        if (op & 1) { now[s] -= bytes; total -= bytes; }
        else { now[s] += bytes; total += bytes; }
        if (total > most[c] || first) {
          if (total >= most[c]) {
            most[c] = total;
            mostTick[c] = this.opTick[o];
            by.set(now, c * count);
          }
          first = false;
        }
        if (total < least[c]) least[c] = total;
      }
    }
  }
  columnsFromBins(edges, firstOp, by, most, least, mostTick) {
    const count = this.seriesCount, bins = this.binMost.length;
    let b = Math.max(0, Math.floor(firstOp / BIN));
    for (let c = 0; c < most.length; c++) {
      const end = edges[c + 1];
      let best = -1;
      least[c] = Infinity;
      while (b < bins && this.opTick[this.binMostOp[b]] < end) {
        if (best < 0 || this.binMost[b] > this.binMost[best]) best = b;
        least[c] = Math.min(least[c], this.binLeast[b]);
        b++;
      }
      if (best >= 0) {
        most[c] = this.binMost[best];
        mostTick[c] = this.opTick[this.binMostOp[best]];
        by.set(this.mostBy.subarray(best * count, (best + 1) * count), c * count);
      } else { // no change in this range
        const now = this.seriesAt(Math.max(0, Math.ceil(edges[c]) - 1));
        most[c] = least[c] = now.reduce((a, x) => a + x, 0);
        mostTick[c] = Math.max(0, Math.ceil(edges[c]) - 1);
        by.set(now, c * count);
      }
    }
  }
  reservedColumns(edges) {
    const columns = edges.length - 1, out = new Float64Array(columns);
    let i = firstAtLeast(this.reservedTick, edges[0]);
    let now = i > 0 ? this.reservedBytes[i - 1] : 0;
    for (let c = 0; c < columns; c++) {
      let most = now;
      for (; i < this.reservedTick.length && this.reservedTick[i] < edges[c + 1]; i++) {
        now = this.reservedBytes[i];
        if (now > most) most = now;
      }
      out[c] = most;
    }
    return out;
  }

  // ---- single allocations ----
  // Lifetimes touched within [from, to): those that begin or end in it, and those that span it.
  livesWithin(from, to) {
    const firstOp = firstAtLeast(this.opTick, from), lastOp = firstAtLeast(this.opTick, to);
    const moving = new Set();
    for (let o = firstOp; o < lastOp; o++) moving.add(this.opLife[o] >>> 1);
    const spanning = this.livesAt(Math.max(0, Math.ceil(from) - 1)).filter((life) => !moving.has(life));
    return { moving: [...moving].sort((a, b) => a - b), spanning, firstOp, lastOp };
  }

  // ---- search ----
  // 1 for each lifetime whose stack or tag contains the words.
  match(words) {
    const needle = words.toLowerCase();
    const hit = this.texts.map((text) => text.toLowerCase().includes(needle));
    const frameHit = new Uint8Array(this.frames.length / 3 + 1);
    for (let f = 1; f < frameHit.length; f++) {
      const at = (f - 1) * 3;
      frameHit[f] = hit[this.frames[at]] || hit[this.frames[at + 1]] || this.frameText(f).place.toLowerCase().includes(needle) ? 1 : 0;
    }
    const nodeHit = new Uint8Array(this.nodeParent.length);
    for (let n = 1; n < nodeHit.length; n++) nodeHit[n] = frameHit[this.nodeFrame[n]] || nodeHit[this.nodeParent[n]];
    const stackHit = this.stackNode.map((node) => nodeHit[node]);
    const tagHit = this.tags.map((text) => (text && hit[text] ? 1 : 0));
    const out = new Uint8Array(this.lives);
    let count = 0;
    for (let i = 0; i < this.lives; i++) count += out[i] = stackHit[this.stackOf[i]] || tagHit[this.tagOf[i]] ? 1 : 0;
    return { lives: out, count, frames: frameHit };
  }

  // ---- the live set ----
  // Groups at a tick, largest first: {group, bytes, count}.
  holders(by, tick) {
    const { of, labels } = this.group(by);
    const bytes = new Float64Array(labels.length), count = new Uint32Array(labels.length);
    for (const life of this.livesAt(tick)) {
      bytes[of[life]] += this.size[life];
      count[of[life]]++;
    }
    const out = [];
    for (let g = 0; g < labels.length; g++) if (count[g]) out.push({ group: g, bytes: bytes[g], count: count[g], label: labels[g] });
    return out.sort((a, b) => b.bytes - a.bytes);
  }
  // The live set at a tick as a tree of frames; framework frames left out if asked. `by` of a node: bytes
  // by series, so that it can have the colour of the chart.
  flame(tick, hideFramework) {
    const bytesOf = new Map();
    for (const life of this.livesAt(tick)) {
      const node = this.nodeOf(life);
      const have = bytesOf.get(node) ?? { bytes: 0, count: 0, by: new Map() };
      have.bytes += this.size[life];
      have.by.set(this.colour[life], (have.by.get(this.colour[life]) ?? 0) + this.size[life]);
      have.count++;
      bytesOf.set(node, have);
    }
    const root = { frame: 0, bytes: 0, count: 0, children: new Map(), depth: 0, by: new Map() };
    const framework = new Map();
    for (const [node, { bytes, count, by }] of bytesOf) {
      root.bytes += bytes;
      root.count += count;
      let at = root;
      const frames = this.stackFrames(node).reverse();
      const shown = hideFramework ? frames.filter((f) => {
        if (!framework.has(f)) framework.set(f, this.isFramework(f));
        return !framework.get(f);
      }) : frames;
      for (const frame of shown.length ? shown : frames.length ? frames.slice(-1) : [0]) {
        let child = at.children.get(frame);
        if (!child) at.children.set(frame, child = { frame, bytes: 0, count: 0, children: new Map(), depth: at.depth + 1, parent: at, by: new Map() });
        for (const [series, part] of by) child.by.set(series, (child.by.get(series) ?? 0) + part);
        child.bytes += bytes;
        child.count += count;
        at = child;
      }
    }
    return root;
  }

  // ---- the address space ----
  // What is reserved at a tick as regions in address order, each with its live blocks.
  regions(tick) {
    const lives = this.livesAt(tick).filter((life) => this.address(life) > 0 && this.size[life] > 0);
    lives.sort((a, b) => this.address(a) - this.address(b));
    let held = this.extents.filter((e) => e.start <= tick && tick < e.end && e.bytes > 0).sort((a, b) => a.address - b.address);
    if (!this.reservedKnown) held = this.guessRegions(lives);
    const regions = [];
    for (const e of held) {
      const last = regions[regions.length - 1];
      if (last && last.mapped && e.mapped && last.address + last.bytes === e.address) last.bytes += e.bytes;
      else regions.push({ address: e.address, bytes: e.bytes, mapped: e.mapped, lives: [], live: 0 });
    }
    let r = 0, stray = 0;
    for (const life of lives) {
      const address = this.address(life);
      while (r < regions.length && regions[r].address + regions[r].bytes <= address) r++;
      if (r < regions.length && address >= regions[r].address) {
        regions[r].lives.push(life);
        regions[r].live += this.size[life];
      } else stray++;
    }
    return { regions, stray };
  }
  // If a trace has no segments: neighbouring allocations, at most 2 MiB apart.
  guessRegions(lives) {
    const gap = 2 ** 21, out = [];
    for (const life of lives) {
      const address = this.address(life), end = address + this.size[life], last = out[out.length - 1];
      if (last && address - (last.address + last.bytes) <= gap) last.bytes = Math.max(last.bytes, end - last.address);
      else out.push({ address, bytes: this.size[life], mapped: false });
    }
    return out;
  }
  // Free pieces inside the regions, largest first.
  holes(regions) {
    const out = [];
    for (const region of regions) {
      let at = region.address;
      const piece = (to) => { if (to - at >= 512) out.push({ address: at, bytes: to - at, region }); };
      for (const life of region.lives) {
        piece(this.address(life));
        at = Math.max(at, this.address(life) + this.size[life]);
      }
      piece(region.address + region.bytes);
    }
    return out.sort((a, b) => b.bytes - a.bytes);
  }
}

// One table of colours for all runs: the groups with the highest peaks over all runs.
export function chooseSeries(runs, by) {
  const most = new Map();
  for (const run of runs) {
    const g = run.group(by);
    g.keys.forEach((key, i) => {
      if (g.most[i] <= 0) return;
      const have = most.get(key) ?? { label: g.labels[i], bytes: 0 };
      have.bytes = Math.max(have.bytes, g.most[i]);
      most.set(key, have);
    });
  }
  const ranked = [...most.entries()].sort((a, b) => b[1].bytes - a[1].bytes);
  const shown = ranked.length <= SERIES_MAX + 1 ? ranked : ranked.slice(0, SERIES_MAX);
  const index = new Map(shown.map(([key], i) => [key, i]));
  const labels = shown.map(([, { label }]) => label);
  const rest = ranked.length - shown.length;
  if (rest > 0) labels.push({ name: `${rest} others`, place: "", rest: true });
  return { labels, index, restAt: rest > 0 ? labels.length - 1 : -1 };
}

// Gives every lifetime of a run its series; what a search does not match goes to one grey series.
export function colourRun(run, by, series, matched) {
  const g = run.group(by), other = series.restAt;
  const seriesOf = g.keys.map((key) => series.index.get(key) ?? other);
  const colour = new Uint8Array(run.lives), unmatched = series.labels.length;
  for (let i = 0; i < run.lives; i++) colour[i] = matched && !matched.lives[i] ? unmatched : seriesOf[g.of[i]];
  run.setSeries(colour, series.labels.length + 1);
}
