// Data: unpacks the payload (src/report/payload.h says how it is laid out) into typed arrays.

class Numbers {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  get more() {
    return this.at < this.bytes.length;
  }
  next() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  signed() {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export const KIND = { ALLOC: 0, FREE_REQUESTED: 1, FREE: 2, FAIL: 3 };
export const OPEN = 0xffffffff; // an end the trace does not show

export async function unpack(text) {
  const bytes = await inflate(bytesOfBase64(text.trim()));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  if (head.version !== 1) throw new Error(`the data is of version ${head.version}, this page reads 1`);
  const body = bytes.subarray(4 + length);
  return head.runs.map((run) => unpackRun(run, body));
}

function unpackRun(run, body) {
  const section = (name) => {
    const place = run.sections[name];
    return place ? body.subarray(place[0], place[0] + place[1]) : new Uint8Array(0);
  };
  const list = (name) => {
    const numbers = new Numbers(section(name)), out = [];
    while (numbers.more) out.push(numbers.next());
    return out;
  };
  const column = (name, Type, count, base = 0) => {
    const out = new Type(count), bytes = section(name);
    if (bytes.length === 0) return out; // one value only: all 0
    const numbers = new Numbers(bytes);
    for (let i = 0; i < count; i++) out[i] = numbers.next() + base;
    return out;
  };

  const ticks = run.ticks, lives = run.lifetimes;
  const times = new Float64Array(Math.max(1, ticks));
  const deltas = new Numbers(section("times"));
  for (let i = 0, now = 0; i < ticks; i++) {
    now = Math.max(now, now + deltas.signed() * run.timeUnit);
    times[i] = now;
  }

  const addresses = list("addrs");
  for (let i = 1; i < addresses.length; i++) addresses[i] += addresses[i - 1];
  const stackOf = column("life.stack", Uint32Array, lives);
  const sizes = list("sizes"), sizeIndex = unpackSizes(section, stackOf);
  const size = new Float64Array(lives);
  for (let i = 0; i < lives; i++) size[i] = sizes[sizeIndex[i]];
  const ops = unpackOps(run, section, sizeIndex, sizes.length, addresses.length);

  return {
    file: run.file, device: run.device, deviceName: run.deviceName, deviceBytes: run.deviceBytes,
    source: run.source, error: run.error, settings: run.settings, notes: run.notes,
    ticks: Math.max(1, ticks), events: ticks, lives, before: run.before, times,
    reservedKnown: run.reservedKnown, wallStartMs: run.wallStartMs,
    peakTick: run.peakTick, peakBytes: run.peakBytes,
    peakReservedBytes: run.peakReservedBytes, peakReservedTick: run.peakReservedTick,
    iterations: unpackIterations(run), policies: run.policies ?? null,
    why: run.why ?? null, host: unpackHost(run.host), profile: run.profile ?? null,
    failureCount: run.failureCount,
    failures: run.failures.map(([tick, asked, deviceFree, node]) => ({ tick, asked, deviceFree, node })),
    texts: run.texts, frames: run.frames, sites: run.sites,
    tags: list("tags"), streams: list("streams"),
    size, addresses, stackOf,
    tagOf: column("life.tag", Uint32Array, lives),
    streamOf: column("life.stream", Uint32Array, lives),
    stackNode: list("stacks.node"), stackSite: list("stacks.site"),
    ...unpackTree(section), ...ops, ...unpackExtents(section),
    marks: unpackMarks(section), ...unpackRests(section, lives),
  };
}

// Samples of host memory: milliseconds and bytes, one after the other.
function unpackHost(host) {
  if (!host?.points.length) return null;
  const count = host.points.length / 2, times = new Float64Array(count), bytes = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    times[i] = host.points[2 * i] * 1e6;
    bytes[i] = host.points[2 * i + 1];
  }
  return { times, bytes, limit: host.limit, peak: host.peak };
}

function unpackTree(section) {
  const up = new Numbers(section("node.up")), frame = new Numbers(section("node.frame"));
  const nodeParent = [0], nodeFrame = [0];
  while (up.more) {
    nodeParent.push(nodeParent.length - up.next());
    nodeFrame.push(frame.next());
  }
  return { nodeParent, nodeFrame };
}

// A lifetime's size is an index in the list of sizes of its stack.
function unpackSizes(section, stackOf) {
  const lists = new Numbers(section("stacks.sizes")), of = [];
  while (lists.more) {
    const list = new Uint32Array(lists.next());
    for (let i = 0; i < list.length; i++) list[i] = lists.next();
    of.push(list);
  }
  const places = new Numbers(section("life.size")), out = new Uint32Array(stackOf.length);
  for (let i = 0; i < out.length; i++) out[i] = of[stackOf[i]][places.next()];
  return out;
}

// Addresses are encoded by what an allocator would do (columns.h): 0 the address freed last by that
// size, 1 the lowest address not used so far, else the number + 2. This repeats the same steps.
class Addresses {
  constructor(bytes, sizeOf, sizes, addresses, lives) {
    this.numbers = new Numbers(bytes);
    this.sizeOf = sizeOf;
    this.of = new Uint32Array(lives);
    this.live = new Uint8Array(addresses + 1);
    this.head = new Uint32Array(sizes + 1);
    this.nodeAddress = new Uint32Array(lives + 1);
    this.nodeNext = new Uint32Array(lives + 1);
    this.nodes = this.unused = 0;
  }
  begin(life) {
    const size = this.sizeOf[life], code = this.numbers.next();
    while (this.head[size] && this.live[this.nodeAddress[this.head[size] - 1]]) this.head[size] = this.nodeNext[this.head[size] - 1];
    let address = code === 1 ? this.unused : code - 2;
    if (code === 0) {
      address = this.nodeAddress[this.head[size] - 1];
      this.head[size] = this.nodeNext[this.head[size] - 1];
    }
    this.of[life] = address;
    this.live[address] = 1;
    if (address >= this.unused) this.unused = address + 1;
  }
  end(life) {
    const size = this.sizeOf[life];
    this.live[this.of[life]] = 0;
    this.nodeAddress[this.nodes] = this.of[life];
    this.nodeNext[this.nodes] = this.head[size];
    this.head[size] = ++this.nodes;
  }
}

// Every begin and end as one operation: opTick ascending, opLife = lifetime * 2 + (1 for an end).
function unpackOps(run, section, sizeOf, sizes, addresses) {
  const kinds = section("kinds"), ages = new Numbers(section("ages")), over = new Numbers(section("over"));
  const start = new Uint32Array(run.lifetimes), end = new Uint32Array(run.lifetimes).fill(OPEN);
  const opTick = new Uint32Array(run.ticks * 2), opLife = new Uint32Array(run.ticks * 2);
  const places = new Addresses(section("life.addr"), sizeOf, sizes, addresses, run.lifetimes);
  for (let life = 0; life < run.before; life++) places.begin(life);
  let ops = 0, seen = run.before, overTick = over.more ? over.next() : -1;
  const finish = (life, tick) => {
    end[life] = tick;
    places.end(life);
    opTick[ops] = tick;
    opLife[ops++] = life * 2 + 1;
  };
  for (let tick = 0; tick < kinds.length; tick++) {
    if (tick === overTick) {
      finish(over.next(), tick);
      overTick = over.more ? tick + over.next() : -1;
    }
    const kind = kinds[tick];
    if (kind === KIND.ALLOC) {
      places.begin(seen);
      start[seen] = tick;
      opTick[ops] = tick;
      opLife[ops++] = seen++ * 2;
    } else if (kind === KIND.FREE) {
      finish(seen - ages.next(), tick);
    }
  }
  return { start, end, opTick: opTick.subarray(0, ops), opLife: opLife.subarray(0, ops), ops, addressIndex: places.of };
}

function unpackExtents(section) {
  const numbers = new Numbers(section("extents")), extents = [];
  while (numbers.more) {
    const address = numbers.next(), bytes = numbers.next(), start = numbers.next();
    const end = numbers.next(), mapped = numbers.next() === 1;
    extents.push({ address, bytes, start, end: end === 0 ? OPEN : end - 1, mapped });
  }
  return { extents };
}

// 1 for each lifetime that represents many allocations.
function unpackRests(section, lives) {
  const numbers = new Numbers(section("rests")), isRest = new Uint8Array(lives);
  for (let life = 0; numbers.more;) isRest[life += numbers.next()] = 1;
  return { isRest };
}

function unpackMarks(section) {
  const numbers = new Numbers(section("marks")), marks = [];
  let tick = 0;
  while (numbers.more) {
    tick += numbers.next();
    marks.push({ tick, name: numbers.next(), ends: numbers.next() === 1 });
  }
  return marks;
}

function unpackIterations(run) {
  const it = run.iterations;
  const list = it.list.map(([start, end, allocs, peak, live]) => ({ start, end, allocs, peak, live }));
  const whole = list.slice(it.setup ? 1 : 0, list.length - (it.partial ? 1 : 0));
  whole.forEach((round, i) => { round.number = it.first + i + 1; });
  return { how: it.how, name: run.texts[it.name] ?? "", guessBytes: it.guessBytes, growth: it.growth, list: whole };
}
