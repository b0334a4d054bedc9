"""Drives the report in a headless Chromium: open, zoom, peak, search, compare, hostile names, dark, a million events.

Prints "ok NAME", "FAIL NAME: why" or "skip NAME: why" for each. Arguments: the stowage command, an empty folder, and optionally
a folder for screenshots (STOWAGE_SHOTS).
"""
import csv
import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import snapshot  # noqa: E402
from browser import Browser, BrowserError, find  # noqa: E402

stowage, folder = sys.argv[1:3]
shots = os.environ.get("STOWAGE_SHOTS")
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "samples")
tests = []


def test(run):
    tests.append(run)
    return run


def report(name, *traces):
    """Makes a report. Returns its address."""
    path = os.path.join(folder, name + ".html")
    subprocess.run([stowage, "report", *traces, "-o", path], check=True, capture_output=True, timeout=100)
    return "file://" + path


def made(name, content):
    path = os.path.join(folder, name + ".pickle")
    if not os.path.exists(path):
        snapshot.write(path, content())
    return path


def recorded(name):
    return os.path.join(DATA, name + ".pickle.gz")


def shot(page, name):
    if shots:
        page.drawn()
        page.screenshot(os.path.join(shots, name + ".png"))


def expect(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r:.300}, expected {wanted!r:.300}")


def holds(condition, what):
    if not condition:
        raise AssertionError(what)


def quiet(page):
    expect(page.complaints(), [], "complaints of the page")


@test
def it_opens_and_shows_what_the_command_says(browser):
    trace = recorded("leak")
    page = browser.open(report("leak", trace))
    text = subprocess.run([stowage, "report", "--text", trace], check=True, capture_output=True, text=True, timeout=60).stdout
    peak = re.search(r"peak live +(\S+ \S+)", text).group(1)
    reserved = re.search(r"peak reserved +(\S+ \S+)", text).group(1)
    facts = page.value("document.getElementById('facts').innerText")
    holds(peak in facts and reserved in facts, f"{peak}, {reserved} not in: {facts!r}")
    holds("57 iterations" in facts, f"iterations: {facts!r}")
    # The viewer's own sums agree with the library's, at the peak and at the end.
    expect(page.value("stowage.active.liveAt(stowage.active.peakTick)"), page.value("stowage.active.peakBytes"), "live at the peak")
    expect(page.value("Math.max(...stowage.active.reservedBytes)"), page.value("stowage.active.peakReservedBytes"), "peak reserved")
    # Every holder in the text is in the legend or the table, with the same bytes.
    page.press("#tab-holders")
    table = page.value("document.getElementById('panel').innerText")
    for size, label in re.findall(r"^ +(\d\S* \S+) +\d\S*% +\d+  (\w+)  ", text, re.M):
        holds(size in table and label in table, f"{label} {size} not in the table")
    shot(page, "leak-holders")
    quiet(page)


@test
def every_allocation_is_in_the_page(browser):
    """Compares begin, end, size and address of each allocation with the snapshot itself."""
    for name in ("gpt_varlen_expandable", "leak"):
        with gzip.open(recorded(name)) as file:
            events = pickle.load(file)["device_traces"][0]  # our own data, made by PyTorch
        begun, ended, number, live = [], [], 0, {}
        for event in events:
            if event["action"] == "alloc":
                begun.append([event["addr"], event["size"]])
                live[event["addr"]] = number
                number += 1
            elif event["action"] == "free_completed" and event["addr"] in live:
                ended.append(live.pop(event["addr"]))
        page = browser.open(report(name, recorded(name)))
        expect(page.value("stowage.active.before"), 0, "allocations from before the recording")
        expect(page.value("[...Array(stowage.active.lives).keys()].map((i) => [stowage.active.address(i), stowage.active.size[i]])"), begun, "addresses and sizes")
        expect(page.value("[...stowage.active.opLife].filter((op) => op & 1).map((op) => op >>> 1)"), ended, "order of the ends")
        quiet(page)


@test
def wheel_and_keys_zoom_to_single_allocations(browser):
    page = browser.open(report("leak", recorded("leak")))
    x, y, w, h = page.box(".chart")
    before = page.value("stowage.charts[0].window")
    holds(not page.value("stowage.charts[0].single"), "single allocations are drawn at full view")
    page.wheel(x + w / 2, y + h / 2, -240)
    page.until("stowage.charts[0].window[1] - stowage.charts[0].window[0] < %f" % (before[1] - before[0]))
    for _ in range(14):
        page.key("+")
    page.drawn()
    holds(page.value("stowage.charts[0].single"), "zoomed in, single allocations are not drawn")
    holds(page.value("stowage.charts[0].rects.length") > 0, "no allocation in view")
    # The drawn allocations add up to what is live at the first event in view.
    page.value("stowage.charts[0].showTicks(14700, 14760)")
    page.drawn()
    expect(page.value("(() => { const c = stowage.charts[0], r = stowage.active, x = c.rects.filter((a) => a.x0 <= 75 && a.x1 > 75); "
                      "return x.reduce((s, a) => s + r.size[a.life], 0) - r.liveAt(Math.ceil(c.ticksShown[0]) - 1); })()"), 0, "drawn minus live at the left edge")
    # A click on one of them shows its stack.
    place = page.value("(() => { const c = stowage.charts[0]; const r = [...c.rects].sort((a, b) => (b.x1 - b.x0) * (b.y1 - b.y0) - (a.x1 - a.x0) * (a.y1 - a.y0)).find((a) => stowage.active.stackNode[stowage.active.stackOf[a.life]]); "
                       "return [(r.x0 + r.x1) / 2, (c.yOf(r.y0) + Math.max(c.yOf(r.y1), 24)) / 2]; })()")
    page.click(x + place[0], y + place[1])
    holds("train.py" in page.until("document.querySelector('.inspector .stack')?.innerText"), "the stack is not shown")
    shot(page, "single")
    page.key("0", text="0")
    expect(page.value("stowage.charts[0].window"), before, "window after 0")
    quiet(page)


@test
def a_click_on_the_peak_chooses_it(browser):
    page = browser.open(report("gpt", recorded("gpt_varlen_limit36.5")))
    page.value("stowage.choose(stowage.active, 5)")
    page.drawn()
    x, y, w, h = page.box(".chart")
    spot = page.value("(() => { const s = stowage.charts[0].spots.find((p) => p.peak); return [s.x, s.top + 8]; })()")
    page.click(x + spot[0], y + spot[1])
    page.until("stowage.active.chosen === stowage.active.peakTick")
    holds("peak" in page.value("document.getElementById('moment').innerText"), "the moment is not called the peak")
    # A plain click elsewhere selects that moment.
    page.click(x + w / 4, y + h / 2)
    page.until("stowage.active.chosen !== stowage.active.peakTick")
    page.press("#jumps button")
    page.until("stowage.active.chosen === stowage.active.peakTick")
    quiet(page)


@test
def search_finds_functions_and_files(browser):
    page = browser.open(report("oom", recorded("oom_gpt_15gib_stacks")))
    page.key("/")
    page.type("activations.py")
    found = page.until("!document.getElementById('found').hidden && document.getElementById('found').innerText")
    count = int(re.match(r"([\d,]+) of", found).group(1).replace(",", ""))
    want = page.value("(() => { const r = stowage.active; let n = 0; for (let i = 0; i < r.lives; i++) if (r.stackFrames(r.stackNode[r.stackOf[i]]).some((f) => r.frameText(f).file.includes('activations.py'))) n++; return n; })()")
    expect(count, want, "allocations found")
    holds(0 < count < page.value("stowage.active.lives"), f"{count} found")
    shot(page, "search")
    page.key("Escape")
    page.until("document.getElementById('found').hidden")
    page.key("/")
    page.type("no such name anywhere")
    holds("0 of" in page.until("!document.getElementById('found').hidden && document.getElementById('found').innerText"), "an empty result is not shown")
    quiet(page)


@test
def every_view_shows_something(browser):
    page = browser.open(report("oom", recorded("oom_gpt_15gib_stacks")))
    for number, name in enumerate(["flame", "holders", "space", "allocations", "iterations"], 1):
        page.key(str(number))
        expect(page.value("stowage.panel"), name, f"view after key {number}")
        page.drawn()
        holds(len(page.value("document.getElementById('panel').innerText")) > 40, f"{name} is empty")
        shot(page, "view-" + name)
    # The address space adds up: live and holes fill what is reserved, up to rounding.
    space = page.value("(() => { const r = stowage.active, { regions } = r.regions(r.peakTick), holes = r.holes(regions); "
                       "const sum = (list, f) => list.reduce((s, x) => s + f(x), 0); return [sum(regions, (x) => x.bytes), sum(regions, (x) => x.live), sum(holes, (x) => x.bytes)]; })()")
    expect(space[0], page.value("stowage.active.reservedAt(stowage.active.peakTick)"), "reserved")
    holds(0 <= space[0] - space[1] - space[2] < 512 * 600, f"reserved, live, holes: {space}")
    # The flame graph adds up.
    expect(page.value("stowage.active.flame(stowage.active.peakTick, true).bytes"), page.value("stowage.active.peakBytes"), "flame graph")
    page.key("o")
    page.until("stowage.active.chosen === stowage.active.failures[0].tick")
    holds("out of memory" in page.value("document.getElementById('moment').innerText"), "the failure is not shown")
    page.press("#tab-about")
    holds("CUDA out of memory" in page.value("document.getElementById('panel').innerText") or not page.value("stowage.active.error"), "the error text is missing")
    quiet(page)


@test
def two_runs_are_compared(browser):
    page = browser.open(report("two", recorded("gpt_varlen_limit36.5"), recorded("gpt_varlen_expandable")), height=1000)
    expect(page.value("document.querySelectorAll('.chart').length"), 2, "charts")
    panel = page.value("document.getElementById('panel').innerText")
    holds("gpt_varlen_limit36.5" in panel and "Change" in panel, f"no difference table: {panel[:200]!r}")
    a, b = page.value("stowage.runs.map((r) => r.liveAt(r.chosen))")
    rows = page.value("[...document.querySelectorAll('#panel tbody tr')].length")
    holds(rows > 2 and a > 0 and b > 0, "the difference is empty")
    expect(page.value("stowage.charts.map((c) => c.high)[0]"), page.value("stowage.charts.map((c) => c.high)[1]"), "height of the two charts")
    page.press("#tab-holders")
    page.press(".which button:last-child")
    page.until("stowage.active === stowage.runs[1]")
    shot(page, "two")
    quiet(page)


@test
def hostile_names_are_only_text(browser):
    page = browser.open(report("hostile", made("hostile", snapshot.hostile)))
    for key in "1234567":
        page.key(key)
        page.drawn()
    page.value("stowage.pick(stowage.active, 0)")
    x, y, w, h = page.box(".chart")
    page.mouse("mouseMoved", x + w / 2, y + h * 0.9)
    page.drawn()
    page.key("/")
    page.type("<img")
    page.until("!document.getElementById('found').hidden")
    expect(page.value("window.ran ?? null"), None, "script from the trace ran")
    expect(page.value("document.querySelectorAll('img, svg, iframe, script[src], link').length"), 0, "elements from the trace")
    holds("<img" in page.value("document.body.innerText"), "the name is not shown")
    quiet(page)


@test
def the_policy_stops_what_is_not_its_own(browser):
    page = browser.open(report("hostile", made("hostile", snapshot.hostile)))
    page.value("(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()")
    page.value("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    page.drawn()
    expect(page.value("window.ran ?? null"), None, "an added script ran")
    expect(page.value("fetch('http://127.0.0.1:9/').then(() => 'went', () => 'stopped')"), "stopped", "a request")


@test
def light_and_dark(browser):
    page = browser.open(report("leak", recorded("leak")), dark=True)
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.value(colour)
    page.prefer_dark(False)
    page.drawn()
    light = page.value(colour)
    holds(dark != light and page.value("getComputedStyle(document.documentElement).getPropertyValue('--dark').trim()") == "0", f"{dark} and {light}")
    page.key("t")
    page.drawn()
    expect(page.value(colour), dark, "background after t")
    shot(page, "dark")
    quiet(page)


@test
def it_fits_narrow_windows(browser):
    for width in (1280, 700, 400):
        page = browser.open(report("oom", recorded("oom_gpt_15gib_stacks")), width=width)
        for key in "12345":
            page.key(key)
            page.drawn()
            wide = page.value("document.documentElement.scrollWidth")
            holds(wide <= width, f"at {width} pixels view {key} is {wide} wide")
        shot(page, f"width-{width}")


@test
def help_lists_the_keys_and_closes(browser):
    page = browser.open(report("leak", recorded("leak")))
    page.key("?")
    holds("go to the peak" in page.until("document.getElementById('keys').open && document.getElementById('keys').innerText"), "no keys")
    page.key("Escape")
    page.until("!document.getElementById('keys').open")
    unnamed = page.value("[...document.querySelectorAll('button, input, canvas')].filter((e) => !(e.innerText || e.getAttribute('aria-label') || e.closest('label'))).map((e) => e.outerHTML.slice(0, 80))")
    expect(unnamed, [], "elements without a name for a screen reader")
    quiet(page)


@test
def an_empty_trace_says_so(browser):
    page = browser.open(report("empty", made("empty", lambda: {"segments": [], "device_traces": [[]]})))
    for key in "123456":
        page.key(key)
        page.drawn()
        holds(len(page.value("document.getElementById('panel').innerText")) > 20, f"view {key} says nothing")
    shot(page, "empty")
    quiet(page)


def run_folder(name, scale=1, events=4000, host=True, parent="runs"):
    """Makes the folder of a run as stowage run leaves it: a trace, its end and the host memory over time."""
    path = os.path.join(folder, parent, name)
    os.makedirs(path, exist_ok=True)
    trace = snapshot.training(events)
    for event in trace["device_traces"][0]:
        if event["action"].startswith(("alloc", "free")) and any(f["name"].startswith("layer_") for f in event.get("frames", [])):
            event["size"] = int(event["size"] * scale)
    snapshot.write(os.path.join(folder, "part.pickle"), trace)
    subprocess.run([stowage, "convert", os.path.join(folder, "part.pickle"), os.path.join(path, "4711.stow")], check=True, capture_output=True, timeout=60)
    with open(os.path.join(path, "end"), "w") as end:
        end.write("code 1\nsignal 0\ncommand python train.py\nkernel 0\n")
    if host:
        first = trace["device_traces"][0][0]["time_us"] * 1000
        with open(os.path.join(path, "host"), "w") as file:
            file.write(f"started\t{first - 10_000_000}\nlimit\t{8 << 30}\tgiven\nheld\t{3 << 30}\t{5 << 30}\t0\nended\t\n")
            file.write("".join(f"sample\t{10 * i}\t{(i + 1) << 28}\n" for i in range(20)))
    return path


def saved(browser, name):
    """Waits for a file that the page saves. Returns its bytes."""
    path = os.path.join(folder, name)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if os.path.exists(path) and os.path.getsize(path) > 0:
            with open(path, "rb") as file:
                return file.read()
        browser.call("Browser.getVersion")
    raise AssertionError(f"{name} was not saved")


@test
def why_and_what_to_change_are_shown(browser):
    trace = recorded("leak")
    page = browser.open(report("leak", trace))
    answer = json.loads(subprocess.run([stowage, "explain", "--json", trace], check=True, capture_output=True, text=True, timeout=60).stdout)
    expect(page.value("stowage.panel"), "why", "first view of a run that failed")
    text = page.value("document.getElementById('panel').innerText")
    for words in [answer["headline"], answer["fixes"][0]["change"], answer["causes"][0]["title"], answer["causes"][0]["evidence"][0]]:
        holds(words in text, f"{words!r} not in {text!r}")
    page.key("1")
    expect(page.value("stowage.panel"), "flame", "view after key 1")
    page.key("w")
    expect(page.value("stowage.panel"), "why", "view after key w")
    shot(page, "why")
    quiet(page)


@test
def a_link_reopens_the_moment_and_the_tab(browser):
    url = report("oom", recorded("oom_gpt_15gib_stacks"))
    page = browser.open(url)
    page.key("4")
    page.value("stowage.chartOf(stowage.active).setWindow(300, 700)")
    page.value("stowage.choose(stowage.active, 512)")
    page.value("stowage.setGroup('size')")
    link = page.until("location.hash.includes('at=512') && location.hash.includes('from=') && location.hash.includes('by=size') && location.hash")
    again = browser.open(url + link)
    expect(again.value("[stowage.panel, stowage.active.chosen, stowage.by, ...stowage.charts[0].window]"), ["allocations", 512, "size", 300, 700], f"state of {link}")
    # What does not fit the report is ignored.
    other = browser.open(url + "#tab=nothing&run=9&at=99999999999&from=-3&to=x&by=constructor&allocation=1e9")
    expect(other.value("[stowage.panel, stowage.active.chosen === stowage.active.peakTick]"), ["why", True], "state of a bad link")
    for one in (page, again, other):
        quiet(one)


@test
def the_chart_and_the_tables_can_be_saved(browser):
    browser.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder})
    page = browser.open(report("oom", recorded("oom_gpt_15gib_stacks")))
    page.drawn()
    page.press("#chart-png")
    picture = saved(browser, "oom_gpt_15gib_stacks-memory.png")
    expect(picture[:8], b"\x89PNG\r\n\x1a\n", "first bytes of the picture")
    holds(len(picture) > 10_000, f"the picture has {len(picture)} bytes")
    page.press("#chart-csv")
    rows = list(csv.DictReader(io.StringIO(saved(browser, "oom_gpt_15gib_stacks-memory.csv").decode())))
    expect(max(int(row["live_bytes"]) for row in rows), page.value("stowage.active.peakBytes"), "highest row of the CSV")
    page.key("2")
    page.press("#panel-csv")
    rows = list(csv.DictReader(io.StringIO(saved(browser, "oom_gpt_15gib_stacks-holders.csv").decode())))
    expect(sum(int(row["Live"]) for row in rows), page.value("stowage.active.peakBytes"), "holders of the CSV")
    holds(any(row["Call site"] == "forward transformers/activations.py:66" for row in rows), f"call sites of the CSV: {[row['Call site'] for row in rows[:3]]}")
    page.key("1")
    expect(page.value("stowage.csv().slice(1).reduce((sum, row) => sum + row[1], 0)"), page.value("stowage.active.peakBytes"), "stacks of the CSV")
    # A name that a spreadsheet would execute as a formula is text.
    hostile = browser.open(report("formula", made("formula", lambda: snapshot.named("=HYPERLINK(1)"))))
    hostile.key("2")
    hostile.value("document.getElementById('panel-csv').click()")
    holds("'=HYPERLINK" in hostile.until("stowage.exported"), "a formula is in the CSV")


@test
def host_memory_is_shown_with_the_device(browser):
    page = browser.open(report("host", run_folder("one")))
    expect(page.value("[stowage.active.host.limit, stowage.active.host.peak]"), [8 << 30, 5 << 30], "limit and peak of the host")
    # The samples begin 10 ms before the first event.
    expect(page.value("[stowage.active.hostAt(0), stowage.active.hostAt(10e6)]"), [2 << 28, 3 << 28], "host memory at the start and 10 ms later")
    x, y, w, h = page.box("canvas.host")
    left, _, wide, _ = page.box(".chart")
    expect([x, w], [left, wide], "place and width of both charts")
    page.mouse("mouseMoved", x + w / 2, y + h / 2)
    holds("host memory" in page.until("!document.getElementById('tip').hidden && document.getElementById('tip').innerText"), "no tooltip")
    holds("5.0 GiB" in page.value("document.getElementById('facts').innerText"), "no peak of the host")
    holds("python train.py" in page.value("document.title"), "the command is not in the title")
    shot(page, "host")
    quiet(page)
    # A run without a trace is shown by its host memory alone.
    alone = run_folder("alone")
    os.remove(os.path.join(alone, "4711.stow"))
    page = browser.open(report("alone", alone))
    holds(page.value("document.querySelector('.chart').hidden") and page.box("canvas.host")[3] > 200, "the host chart is not the only one")
    expect(page.value("stowage.active.chosen"), 19, "moment of the highest sample")
    expect(page.value("document.querySelector('#moment .badge').innerText"), "peak", "name of the moment of the peak")
    expect(page.value("document.getElementById('subtitle').innerText"), "20 samples of host memory · 190.0 ms", "line under the title")
    page.press("#chart-csv")
    expect(page.value("stowage.exported").split(), ["time_ns,host_bytes", *(f"{10_000_000 * i},{(i + 1) << 28}" for i in range(20))], "CSV of the host")
    shot(page, "host-alone")
    quiet(page)
    # The kernel saw more than the samples: the highest sample is not called the peak.
    with open(os.path.join(alone, "host")) as file:
        text = file.read()
    with open(os.path.join(alone, "host"), "w") as file:
        file.write(text.replace(str(5 << 30), str(6 << 30), 1))
    page = browser.open(report("alone", alone))
    holds("largest sample" in page.value("document.getElementById('moment').innerText"), "a sample below the peak is called the peak")
    holds("6.0 GiB" in page.value("document.getElementById('moment').innerText"), "the peak between the samples is not named")
    quiet(page)


# Device memory of known lines (also of tests/shim/profile.sh), lines that are left out, and host memory at the end.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "shim", "python", "device_lines.py")) as source:
    PROFILED = source.read() + """


del gone

rows = bytearray(40 << 20)  # <img src=x onerror="window.ran = 1">
"""


@test
def lines_stand_beside_their_source(browser):
    standin = os.path.join(os.path.dirname(stowage), "tests", "standin", "libcuda.so.1")
    program, figures, state = (os.path.join(folder, name) for name in ("profiled.py", "profiled.json", "profiled-state"))
    with open(program, "w") as file:
        file.write(PROFILED)
    surroundings = {**os.environ, "STOWAGE_LIBCUDA": standin, "STANDIN_PATH": standin, "XDG_STATE_HOME": state}
    subprocess.run([stowage, "run", "--quiet", "--profile", "--profile-json", figures, "--", os.environ.get("STOWAGE_TEST_PYTHON", "/usr/bin/python3"), program], check=True, capture_output=True, timeout=60, env=surroundings)
    last = os.path.join(state, "stowage", "runs", "last")
    page = browser.open(report("lines", last), height=1000)
    expect(page.value("stowage.panel"), "lines", "first view of a run that was profiled")
    # Each line has the figures of --profile-json: host peak, kept, allocated and its error, GPU peak, kept, allocated.
    with open(figures) as file:
        lines = [line for line in json.load(file)["lines"] if line["file"] == program]
    keys = [("host", "peak"), ("host", "kept"), ("host", "allocated"), ("host", "allocated_error"), ("device", "peak"), ("device", "kept"), ("device", "allocated")]
    wanted = {line["line"]: [line[kind][f"{key}_bytes"] for kind, key in keys] for line in lines}
    expect({row[1]: row[4:] for row in page.value("stowage.csv().slice(1)")}, wanted, "bytes by line")
    rows = page.value("[...document.querySelectorAll('.lines tbody tr:not(.gap)')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    shown = {row[6]: row[:6] for row in rows if any(row[:6])}
    expect(sorted(map(int, shown)), sorted(wanted), "lines with figures")
    expect(shown["10"][3:], ["11.0 MiB", "8.0 MiB", "11.0 MiB"], "GPU memory of line 10")
    expect(shown["21"][:2], ["40.0 MiB", "40.0 MiB"], "host memory of line 21")
    # The text is the program's, with lines around, and a gap for those left out.
    text = {int(row[6]): row[7] for row in rows}
    expect(text, {n: PROFILED.splitlines()[n - 1] for n in text}, "source")
    holds({9, 11, 18, 19, 20, 21} <= set(text) and 16 not in text, f"lines: {sorted(text)}")
    holds(page.value("document.querySelectorAll('.lines .gap').length") >= 1, "no gap")
    expect(page.value("window.ran ?? null"), None, "script from the source ran")
    shot(page, "lines")
    page.key("1")
    expect(page.value("stowage.panel"), "flame", "view after key 1")
    page.key("l")
    expect(page.value("stowage.panel"), "lines", "view after key l")
    wide = page.value("document.documentElement.scrollWidth")
    holds(wide <= 1280, f"{wide} pixels wide")
    quiet(page)
    # A file that changed after the run is shown with a warning; one that is gone, by its lines alone.
    with open(program, "a") as file:
        file.write("# changed\n")
    later = time.time() + 60
    os.utime(program, (later, later))
    page = browser.open(report("lines-changed", last))
    holds("has changed since the run" in page.value("document.getElementById('panel').innerText"), "no warning about the changed file")
    os.remove(program)
    page = browser.open(report("lines-missing", last))
    panel = page.value("document.getElementById('panel').innerText")
    holds("is not there" in panel and "11.0 MiB" in panel and "in take" in panel, f"without its source: {panel[:400]!r}")
    quiet(page)


@test
def ranks_stand_side_by_side_with_their_imbalance(browser):
    for rank, scale in enumerate([1, 1, 3]):
        run_folder(f"rank{rank}", scale, host=rank == 0, parent="ranks")
    page = browser.open(report("ranks", os.path.join(folder, "ranks")), height=1000)
    expect(page.value("document.querySelectorAll('.chart').length"), 3, "charts")
    expect(page.value("stowage.panel"), "balance", "first view")
    peaks = page.value("stowage.runs.map((r) => r.peakBytes)")
    mean = sum(peaks) / 3
    holds(peaks[2] > mean, f"peaks: {peaks}")
    above = f"{100 * (peaks[2] - mean) / mean:.1f}%"
    panel = page.value("document.getElementById('panel').innerText")
    holds("rank 2 has the highest" in panel and f"+{above}" in panel, f"{above} not in {panel[:400]!r}")
    holds(above in page.value("document.getElementById('facts').innerText"), "no imbalance among the essentials")
    holds(re.search(r"layer_\d+", panel), "no call site that differs")
    boxes = page.value("[...document.querySelectorAll('.chart')].slice(0, 2).map((e) => e.getBoundingClientRect().y)")
    expect(boxes[0], boxes[1], "tops of the first two charts")
    shot(page, "ranks")
    quiet(page)


@test
def ranks_without_a_device_are_compared_by_their_host_memory(browser):
    for count in (2, 3):
        parent = f"hosts{count}"
        for rank in range(count):
            path = run_folder(f"rank{rank}", parent=parent)
            os.remove(os.path.join(path, "4711.stow"))
            with open(os.path.join(path, "host")) as file:
                text = file.read()
            with open(os.path.join(path, "host"), "w") as file:
                file.write(text.replace(str(5 << 30), str((5 + rank) << 30), 1))
        page = browser.open(report(parent, os.path.join(folder, parent)))
        expect(page.value("stowage.panel"), "balance", "first view")
        panel = page.value("document.getElementById('panel').innerText")
        mean = 5 + (count - 1) / 2
        words = f"rank {count - 1} has the highest, {4 + count}.0 GiB, {100 * (4 + count - mean) / mean:.1f}% above the mean"
        holds(words in panel and "rank 0 the lowest, 5.0 GiB" in panel, f"{words!r} not in {panel!r}")
        holds("Peak host" in panel and "reserved" not in panel, f"columns of {panel!r}")
        expect(page.box("canvas.host")[3], 200, "height of the only charts")
        shot(page, parent)
        quiet(page)


@test
def line_numbers_always_show(browser):
    deep = "/srv/" + "a_long_folder_name/" * 8 + "a_module_with_a_long_name.py"
    page = browser.open(report("deep", made("deep", lambda: snapshot.named("function_with_a_rather_long_name", deep, 12345))), width=700)
    page.key("2")
    page.drawn()
    # The end of the path is inside every box that shows it.
    hidden = page.value("[...document.querySelectorAll('.site .place bdi')].filter((e) => { const box = e.parentElement.getBoundingClientRect(), text = e.getBoundingClientRect(); "
                        "return !e.innerText.includes(':12345') || text.right > box.right + 1 || box.width < 40; }).length")
    expect(hidden, 0, "labels without their line")
    holds(page.value("document.querySelectorAll('.site .place bdi').length") >= 2, "no labels")
    page.key("1")
    page.drawn()
    labels = page.value("(() => { const c = document.createElement('canvas').getContext('2d'); c.font = '11.5px system-ui'; "
                        "const f = window.stowage.flameGraph; return [400, 120, 50].map((w) => f.label(c, stowage.active.frameText([...f.root.children.values()][0].children.keys().next().value), w)); })()")
    holds(all(label.endswith(":12345") for label in labels), f"labels of the flame graph: {labels}")
    shot(page, "deep")
    quiet(page)


@test
def the_flame_graph_has_the_colours_of_the_chart(browser):
    page = browser.open(report("leak", recorded("leak")))
    page.key("1")
    page.drawn()
    same = page.value("""(() => {
      const f = stowage.flameGraph, run = stowage.active, c = f.canvas.element.getContext('2d'), out = [];
      for (const b of f.boxes) if (b.width > 60 && b.node.parent && b.node.children.size === 0) {
        const group = run.group('site'), of = group.labels.findIndex((l) => l.name === run.frameText(b.node.frame).name && l.line === run.frameText(b.node.frame).line);
        const series = stowage.series.index.get(group.keys[of]), wanted = stowage.flameGraph.colour({ parent: 1, by: new Map([[series, 1]]), bytes: 1 }).fill;
        const [r, g, blue] = c.getImageData((b.x + 2) * devicePixelRatio, (b.y + 2) * devicePixelRatio, 1, 1).data;
        out.push([`rgb(${r} ${g} ${blue})`, wanted, stowage.charts[0].colour(series)]);
      }
      return out; })()""")
    holds(len(same) >= 2 and len({row[2] for row in same}) >= 2, f"leaves: {same}")
    for drawn, wanted, _ in same:
        expect(drawn, wanted, "colour of a leaf")


@test
def the_tooltip_goes_when_a_key_zooms(browser):
    page = browser.open(report("leak", recorded("leak")))
    x, y, w, h = page.box(".chart")
    for key in ("+", "ArrowLeft", "2"):
        page.mouse("mouseMoved", x + w / 2, y + h / 2)
        page.until("!document.getElementById('tip').hidden")
        page.key(key)
        page.drawn()
        holds(page.value("document.getElementById('tip').hidden"), f"the tooltip stays after {key}")
        page.mouse("mouseMoved", x + w / 3, y + h / 2)
    quiet(page)


@test
def it_is_dark_when_the_notebook_is(browser):
    with open(report("leak", recorded("leak"))[7:]) as file:
        srcdoc = file.read().replace("&", "&amp;").replace('"', "&quot;")
    path = os.path.join(folder, "notebook.html")
    frame = "document.querySelector('iframe').contentDocument"
    dark = f"{frame}.defaultView.getComputedStyle({frame}.documentElement).getPropertyValue('--dark').trim()"
    for body, wanted in [('data-jp-theme-light="false"', "1"), ('data-jp-theme-light="true"', "0"), ('class="vscode-dark"', "1"), ('style="background: #111"', "1"), ('style="background: #fff"', "0")]:
        with open(path, "w") as file:
            file.write(f'<!doctype html><meta charset="utf-8"><body {body}><iframe srcdoc="{srcdoc}"></iframe>')
        # The system prefers the opposite.
        page = browser.open("file://" + path, dark=wanted == "0", wait=f"{frame}.documentElement.dataset.ready")
        expect(page.value(dark), wanted, f"dark in {body}")
    page = browser.open("file://" + path, wait=f"{frame}.documentElement.dataset.ready")
    page.value("document.body.dataset.jpThemeLight = 'false'")
    page.until(f"{dark} === '1'")


@test
def many_events_open_and_stay_quick(browser):
    count = 1_000_000 if os.environ.get("STOWAGE_TEST_LONG") else 200_000  # the whole million: make test-long
    trace = made("million", lambda: snapshot.training(count))
    url = report("million", trace)
    size = os.path.getsize(url[7:])
    holds(size <= 1_000_000 + 4 * count, f"the page has {size} bytes")
    page = browser.open(url)
    holds(page.value("stowage.active.events") >= count, "events are missing")
    # Zooms step by step, from everything to a single allocation.
    frames = page.value("(() => { const c = stowage.charts[0], t = []; const e = c.canvas.element, g = e.getContext('2d'); "
                        "for (let i = 0; i < 40; i++) { const a = performance.now(); c.draw(g, e.clientWidth, e.clientHeight); g.getImageData(0, 0, 1, 1); t.push(performance.now() - a); c.zoom(0.72, 123456); } return t; })()")
    choose = page.value("(() => { const a = performance.now(); stowage.choose(stowage.active, %d); return performance.now() - a; })()" % (count // 2))
    seek = page.value("(() => { const a = performance.now(); stowage.search('layer_3'); return performance.now() - a; })()")
    holds(page.value("stowage.charts[0].single") is not None and not page.complaints(), "zoomed in nothing is drawn")
    shot(page, "million")
    ready = int(page.value("document.documentElement.dataset.ready"))
    return (f"opens in {page.open_seconds:.2f} s (shown after {ready} ms), {size / 1e6:.2f} MB; a draw takes {sorted(frames)[20]:.1f} ms, at most {max(frames):.1f}; "
            f"a moment {choose:.0f} ms, a search {seek:.0f} ms")


def main():
    if not find():
        for run in tests:
            print(f"skip {run.__name__}: no Chromium here (Debian, Ubuntu: apt-get install chromium)")
        return 0
    failed = 0
    only = sys.argv[3:]
    with Browser() as browser:
        try:
            browser.call("Browser.getVersion")
        except BrowserError as error:
            for run in tests:
                print(f"skip {run.__name__}: the browser does not start: {str(error)[:150]!r}")
            return 0
        for run in tests:
            if only and run.__name__ not in only:
                continue
            try:
                note = run(browser)
                print(f"ok {run.__name__}" + (f": {note}" if note else ""), flush=True)
            except (AssertionError, BrowserError, subprocess.SubprocessError) as error:
                failed = 1
                print(f"FAIL {run.__name__}: {error}", flush=True)
            except Exception:
                failed = 1
                print(f"FAIL {run.__name__}: {traceback.format_exc(limit=-2)!r}", flush=True)
    return failed


sys.exit(main())
