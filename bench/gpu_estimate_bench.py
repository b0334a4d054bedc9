"""stowage.estimate and stowage.tune against a GPU: the peak of PyTorch's reserve, the batch, and the time of a step.

usage: gpu_estimate_bench.py [--estimate-only] [--only NAME,NAME] [--parts NAME,NAME] [--workers N] [--seconds N] [--gpu NAME] [--steps N]
                             [--state FILE]

Four parts:
  kernels Single operators, one after the other in one process: peak live by formula beside the device, and the sizes that the device allocated.
          Also what the CUDA context takes, and the allocations of about 400 convolutions and RNNs of random shapes.
  memory  Each program is estimated, then run alone in a new process, with nothing else in PyTorch's allocator. Then it runs four times more
          under a limit: the ends of the estimated range, where the answer is yes and no, and 4% above and 6% below the estimated need.
  tune    stowage.tune picks a batch with real steps; 100 steps of varying lengths follow. Bisection finds the largest that runs 16 of those.
  time    A few programs run one after another, with nothing beside them: the simulated time of a step against the measured one.
Memory and tune run several processes at once; a process waits until the device has what its program needs. One line per program, with the
error split into live, cached (reserved and not live) and workspaces, then the totals. Each result is added to FILE (estimate_gpu.jsonl in
$OUT, or here) as soon as it is there. A second call with that file leaves out what is in it, so that a run that was cut off goes on.
For each program it also has the sizes that only the device or only the estimate allocated, with their lines.
"""

import argparse
import collections
import csv
import gc
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # is_available() must not start CUDA here: this process forks

import torch  # noqa: E402

import estimate_operators  # noqa: E402
import estimate_programs  # noqa: E402
import estimate_programs_more  # noqa: E402
import estimate_programs_varied  # noqa: E402
import stowage  # noqa: E402
from stowage import _kernel_times  # noqa: E402
from stowage._analysis import convert  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
SWEEP_SECONDS = 55
SEQUENCE_MOST = 20000  # allocations and frees of a program that are kept
CONTEXT = 1 * GIB  # what a process takes beside its tensors, at most
#: Programs whose steps are timed.
TIMED = (
    "gpt_fp32_adamw gpt_bf16_adamw gpt_bf16_ckpt gpt_infer_bf16 gpt_generate_fp16 llama_bf16_sgd llama_lora resnet_fp32_sgd resnet_bf16_last "
    "unet_bf16_adamw vit_bf16_adamw lstm_fp32_adamw mamba_bf16_adamw diffusion_bf16_ema moe_bf16_adamw convnext_fp16_scaler_clip"
).split()


# ---- on the device ----


def clean():
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
            torch._C._cuda_clearCublasWorkspaces()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def limit_to(limit_bytes):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total) if limit_bytes else 1.0)


def run_real(make, steps, limit_bytes=None, history=False):
    """Runs a program on the device; returns what PyTorch counted. Out of memory is a result."""
    clean()
    limit_to(limit_bytes)
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    if history:
        torch.cuda.memory._record_memory_history(max_entries=400000, context="alloc", stacks="python")
    began = time.monotonic()
    out = {"residue_bytes": before, "failed": None}
    try:
        random.seed(0)
        torch.manual_seed(0)
        step = make()
        for i in range(steps):
            step(i)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as reason:
        out["failed"] = str(reason)[:200]
    step = None
    stats = torch.cuda.memory_stats()
    out["seconds"] = round(time.monotonic() - began, 2)
    out["reserved_bytes"] = stats.get("reserved_bytes.all.peak", 0)
    out["live_bytes"] = stats.get("allocated_bytes.all.peak", 0)
    out["cached_bytes"] = out["reserved_bytes"] - out["live_bytes"]
    out["retries"] = stats.get("num_alloc_retries", 0)
    if history:
        events = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled=None)
        out["events"] = [(one["size"], line_of(one.get("frames", []))) for one in events if one["action"] == "alloc"]
        out["sequence"] = changes(events, MIB)[-SEQUENCE_MOST:]
    clean()
    return out


def changes(events, least=0):
    """Returns the sizes of allocations, and those of frees below zero, in the order of a memory history; without those under `least` bytes."""
    signs = {"alloc": 1, "free_requested": -1}
    return [signs[one["action"]] * one["size"] for one in events if one["action"] in signs and one["size"] >= least]


def line_of(frames):
    """Returns the innermost line of a program, or of PyTorch if there is no other."""
    ours = [one for one in frames if "/torch/" not in one["filename"] and "gpu_estimate_bench" not in one["filename"]]
    for one in ours or frames:
        return f"{one['filename'].rsplit('/', 1)[-1]}:{one['line']} {one['name']}"
    return ""


def allocations(trace):
    """Returns the sizes that an estimate allocated, rounded as PyTorch rounds them; or None and the reason."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.csv")
        try:
            convert(trace, path)
        except Exception as reason:
            return None, str(reason)
        with open(path, newline="") as file:
            return [-(-int(row["bytes"]) // 512) * 512 for row in csv.DictReader(file) if row["kind"] == "alloc"], None


def differences(real_events, sizes, shown=14):
    """Returns the sizes that only one side allocated, sorted by bytes."""
    real, ours, lines = collections.Counter(), collections.Counter(sizes), {}
    for size, line in real_events:
        size = -(-size // 512) * 512
        real[size] += 1
        lines.setdefault(size, line)

    def top(counter, other):
        return sorted(((size, n - other[size]) for size, n in counter.items() if n > other[size]), key=lambda one: -one[0])[:shown]

    return {
        "only_device": [{"bytes": s, "count": n, "line": lines.get(s, "")} for s, n in top(real, ours)],
        "only_estimate": [{"bytes": s, "count": n} for s, n in top(ours, real)],
        "device_count": sum(real.values()),
        "estimate_count": sum(ours.values()),
    }


# ---- the jobs of a child process: each fills `one` and returns the line to print ----


def estimated(one, make, options):
    """Estimates a program and adds up the simulated time of each operator in its last step."""
    by_name, plain = collections.Counter(), _kernel_times.device_ns

    def counted(name, *rest):
        took = plain(name, *rest)
        by_name[name] += took
        return took

    def stepping():
        step = make()

        def run(i):
            by_name.clear()
            step(i)

        return run

    _kernel_times.device_ns = counted
    start = time.monotonic()
    random.seed(0)
    torch.manual_seed(0)
    try:
        found = stowage.estimate(stepping, steps=options.steps, gpu=options.gpu)
    finally:
        _kernel_times.device_ns = plain
    one["estimate_seconds"] = round(time.monotonic() - start, 2)
    one["estimate"] = {key: found.data[key] for key in ("peak_live_bytes", "peak_reserved_bytes", "needs_bytes", "needs_low_bytes", "needs_high_bytes", "uncertainty", "holders", "beside", "notes", "events")}
    one["estimate"]["holders"] = one["estimate"]["holders"][:12]
    one["simulated_ms"] = found.data["simulated_step_ns"] / 1e6
    one["simulated_by_operator"] = {name: ns / 1e6 for name, ns in by_name.most_common(25)}
    return found


def memory_job(one, make, options, ask):
    try:
        found = estimated(one, make, options)
    except Exception as reason:
        if options.estimate_only:
            raise
        ask(20 * GIB)
        one["real"] = real = run_real(make, options.steps)
        one["error"] = f"{type(reason).__name__}: {reason}"
        return f"{one['case']} ERROR not estimated: {one['error'][:200]} real {real['reserved_bytes'] / MIB:.0f} live {real['live_bytes'] / MIB:.0f}"
    text = f"{one['case']} est {found.peak_reserved / MIB:.0f}"
    if options.estimate_only:
        return f"{text} live {found.peak_live / MIB:.0f} needs {found.data['needs_bytes'] / MIB:.0f} s {one['estimate_seconds']} events {found.data['events']}"
    sizes, problem = allocations(found.trace)
    ask(int(found.peak_reserved * 1.4) + CONTEXT)
    real = run_real(make, options.steps, history=True)
    events = real.pop("events", [])
    one["real"] = real
    one["differences"] = differences(events, sizes) if sizes is not None else problem
    one["reserved_error"] = error = found.peak_reserved / real["reserved_bytes"] - 1
    one["live_error"] = found.peak_live / real["live_bytes"] - 1
    one["fits"], one["ranges"] = [], []
    data = found.data

    def limited(limit):
        got = run_real(make, options.steps, limit_bytes=limit)
        return {"limit_bytes": limit, "fits": got["failed"] is None, "retries": got["retries"], "reserved_bytes": got["reserved_bytes"]}

    for said, limit in (("yes", -(-data["needs_high_bytes"] // (2 * MIB)) * (2 * MIB)), ("no", data["needs_low_bytes"] // (2 * MIB) * (2 * MIB) - 2 * MIB)) if not real["failed"] else ():
        one["ranges"].append({"said": said, **limited(limit)})
    for factor in (1.04, 0.94) if not real["failed"] else ():
        limit = int(data["needs_bytes"] * factor) // (2 * MIB) * (2 * MIB)
        said = stowage.replay(found.trace, "torch_default", vram_limit=limit).data[0]["finishes"]
        one["fits"].append({"said": said, **limited(limit)})
    wrong = sum(1 for f in one["fits"] if f["said"] != f["fits"])
    wrong_range = [r["said"] for r in one["ranges"] if (r["said"] == "yes") != r["fits"]]
    text += f" real {real['reserved_bytes'] / MIB:.0f} err {100 * error:+.1f}% live {100 * one['live_error']:+.1f}% wrong {wrong}/{len(one['fits'])}"
    text += f" range {100 * (data['needs_low_bytes'] / data['needs_bytes'] - 1):+.0f}%{100 * (data['needs_high_bytes'] / data['needs_bytes'] - 1):+.0f}%"
    text += f" WRONG {' '.join(wrong_range)}" if wrong_range else ""
    text += f" s {one['estimate_seconds']:.0f}+{real['seconds']:.0f}" + (" FAILED" if real["failed"] else "")
    if abs(error) > 0.02 or abs(one["live_error"]) > 0.02 or wrong or wrong_range:
        diff = one["differences"]
        beside = ", ".join(f"{b['what']} {b['bytes'] / MIB:.0f}" for b in data["beside"][:4])
        text += f"\n  split MiB: live {found.peak_live / MIB:.0f} beside {real['live_bytes'] / MIB:.0f}, cached {(found.peak_reserved - found.peak_live) / MIB:.0f} beside {real['cached_bytes'] / MIB:.0f}; estimated {beside or 'no workspace'}"
        device = [f"{d['count']}x{d['bytes'] / MIB:.1f}@{d['line'].split(' ')[0]}" for d in diff["only_device"][:3]]
        ours = [f"{d['count']}x{d['bytes'] / MIB:.1f}" for d in diff["only_estimate"][:3]]
        text += f"\n  device+ {' '.join(device)} est+ {' '.join(ours)}"
    return text


def kernels_job(one, make, options, ask):
    """Single operators in one process: peak live by formula beside the device. Everything is in one result, by name."""
    ask(24 * GIB)
    one["operators"], texts = {}, []
    deadline = time.monotonic() + options.seconds / 3
    for name, of in estimate_operators.OPERATORS.items():
        if time.monotonic() > deadline:
            texts.append(f"# operators: out of time before {name}")
            break
        try:
            ours = stowage.estimate(of, steps=1, gpu=options.gpu)
            row = {"estimate_bytes": ours.peak_live, "beside": ours.data["beside"]}
            if not options.estimate_only:
                clean()
                torch.cuda.reset_peak_memory_stats()
                step = of()
                torch.cuda.memory._record_memory_history(max_entries=1000, context=None)
                step()
                torch.cuda.synchronize()
                events = torch.cuda.memory._snapshot()["device_traces"][0]
                torch.cuda.memory._record_memory_history(enabled=None)
                step = None
                row["device_bytes"] = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
                row["device_allocations"] = [event["size"] for event in events if event["action"] == "alloc"]
        except Exception as reason:
            row = {"error": f"{type(reason).__name__}: {reason}"[:300]}
        one["operators"][name] = row
        if "error" in row:
            texts.append(f"operator {name} ERROR {row['error'][:120]}")
        elif "device_bytes" in row and abs(row["device_bytes"] - row["estimate_bytes"]) > max(MIB, 0.02 * row["device_bytes"]):
            largest = " ".join(f"{size / MIB:.1f}" for size in sorted(row["device_allocations"], reverse=True)[:5])
            texts.append(f"operator {name} est {row['estimate_bytes'] / MIB:.1f} device {row['device_bytes'] / MIB:.1f} MiB; the device allocated {largest}")
    one["context_bytes"] = 0
    if not options.estimate_only:
        clean()
        free, total = torch.cuda.mem_get_info()
        one["context_bytes"] = total - free - torch.cuda.memory_reserved()  # nothing else is on the device during this part
    measured = [row for row in one["operators"].values() if "device_bytes" in row]
    near = sum(1 for row in measured if abs(row["device_bytes"] - row["estimate_bytes"]) <= max(MIB, 0.02 * row["device_bytes"]))
    texts.append(f"case=operators measured={len(measured)} within_2%_or_1MiB={near} context={one['context_bytes'] / MIB:.0f}MiB")
    return "\n".join(texts)


def sweep_job(one, make, options, ask):
    """Runs the operators of estimate_operators.SWEEP once, and keeps what they allocated and freed. Stops after a minute."""
    ask(24 * GIB)
    one["sweep"] = []
    began = time.monotonic()
    for what, given in estimate_operators.SWEEP:
        if time.monotonic() - began > SWEEP_SECONDS:
            break
        step = None
        clean()
        step = estimate_operators.sweep_operator(what, given)()
        torch.cuda.memory._record_memory_history(max_entries=1000, context=None)
        try:
            step()
            torch.cuda.synchronize()
            found = {"changes": changes(torch.cuda.memory._snapshot()["device_traces"][0])}
        except Exception as reason:
            found = {"error": f"{type(reason).__name__}: {reason}"[:300]}
        torch.cuda.memory._record_memory_history(enabled=None)
        one["sweep"].append({"what": what, "given": given, **found})
    failed = sum(1 for row in one["sweep"] if "error" in row)
    return f"case=sweep measured={len(one['sweep']) - failed}/{len(estimate_operators.SWEEP)} failed={failed} seconds={time.monotonic() - began:.0f}"


def time_job(one, make, options, ask):
    """Measures the wall time of a step and the time of each operator on the device."""
    ask(100 * GIB)  # alone
    torch.manual_seed(0)
    step = make()
    for i in range(3):
        step(i)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(6):
        step(i)
    torch.cuda.synchronize()
    one["measured_ms"] = (time.perf_counter() - began) / 6 * 1e3
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step(2)
        torch.cuda.synchronize()
    rows = [(row.key.removeprefix("aten::"), getattr(row, "self_device_time_total", 0) / 1e3, row.count) for row in seen.key_averages() if row.key.startswith("aten::")]
    one["measured_by_operator"] = {name: ms for name, ms, _ in sorted(rows, key=lambda row: -row[1])[:25]}
    one["device_ms"], one["operators"] = sum(ms for _, ms, _ in rows), sum(count for _, ms, count in rows if ms)
    return None


TUNE_LIMIT = 3 * GIB


def tune_job(one, make, options, ask):
    """tune with real steps under a limit, against the largest batch that runs."""
    ask(TUNE_LIMIT + CONTEXT)
    limit_to(TUNE_LIMIT)
    torch.manual_seed(0)
    step, longest = make()
    began = time.monotonic()
    plan = stowage.tune(lambda n: step(n, longest), batch=2)
    one["tune_seconds"], one["picked"] = time.monotonic() - began, plan.largest_batch
    one["plan"] = {key: plan.data[key] for key in ("needs_bytes", "limit_bytes", "available_bytes", "tried")}

    one["failed_steps"], draw = 0, random.Random(1)
    for _ in range(100):
        try:
            step(plan.largest_batch, longest if draw.random() < 0.2 else draw.randrange(longest // 4, longest) // 8 * 8)
        except torch.OutOfMemoryError:
            one["failed_steps"] += 1
    torch.cuda.synchronize()

    def runs(n):
        failed, draw = False, random.Random(2)
        clean()
        try:
            for at in range(16):
                step(n, longest if at in (0, 1, 15) else draw.randrange(longest // 4, longest) // 8 * 8)
            torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            failed = True
        clean()
        return not failed

    good, bad = plan.largest_batch, 2 * plan.largest_batch
    while bad - good > 1 and bad > good * 1.005:
        guess = min(bad - 1, good + max(1, good // 16)) if bad == 2 * plan.largest_batch else (good + bad) // 2
        good, bad = (guess, bad) if runs(guess) else (good, guess)
    one["largest"] = good
    one["short"] = 1 - one["picked"] / one["largest"]
    return f"{one['case']} picked {one['picked']} largest {good} short {100 * one['short']:.1f}% failed {one['failed_steps']}/100 s {one['tune_seconds']:.0f}+{time.monotonic() - began:.0f}"


# ---- programs for tune: make() returns a function of the batch and the length, and the longest length ----


def tunable(model_fn, loss, longest, amp=None, optimizer="adamw", infer=False):
    def make():
        model = model_fn().to("cuda")
        parameters = [one for one in model.parameters() if one.requires_grad]
        made = torch.optim.AdamW(parameters, lr=1e-4) if optimizer == "adamw" else torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

        def step(batch, length):
            try:
                with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None), torch.set_grad_enabled(not infer):
                    found = loss(model, 0, batch, length)
                if not infer:
                    found.backward()
                    made.step()
            finally:
                made.zero_grad(set_to_none=True)

        return step, longest

    return make


def tune_programs():
    p = estimate_programs
    small = {"layers": 4, "width": 512, "heads": 8, "vocab": 16000}
    tokens = lambda m, i, b, n: m(p.ids(b, n, 8000))  # noqa: E731
    few = lambda m, i, b, n: p.F.cross_entropy(m(p.ids(b, n, 8000)).flatten(0, 1), p.ids(b, n, 8000).flatten())  # noqa: E731
    pairs = lambda m, i, b, n: p.F.cross_entropy(m(p.ids(b, n, 8000), p.ids(b, n // 2, 8000)).flatten(0, 1), p.ids(b, n // 2, 8000).flatten())  # noqa: E731
    return {
        "tune_gpt_fp32": tunable(lambda: p.GPT(**small), few, 256),
        "tune_gpt_bf16": tunable(lambda: p.GPT(**small), few, 512, torch.bfloat16),
        "tune_gpt_ckpt": tunable(lambda: p.GPT(ckpt=True, **small), few, 512, torch.bfloat16),
        "tune_lora": tunable(lambda: p.with_lora(p.Llama(layers=4, width=512, heads=8, kv=4, hidden=1408, vocab=16000).cuda().bfloat16()), few, 512),
        "tune_resnet": tunable(p.ResNet50, p.images, 224, torch.bfloat16, "sgd"),
        "tune_unet": tunable(lambda: p.UNet(32), p.dense, 128),
        "tune_t5": tunable(lambda: p.T5(layers=3, width=512, heads=8, vocab=16000), pairs, 256, torch.bfloat16),
        "tune_vit": tunable(lambda: p.ViT(layers=6, width=384, heads=6), lambda m, i, b, n: p.images(m, i, b, max(16, n // 16 * 16)), 224, torch.bfloat16),
        "tune_lstm": tunable(lambda: p.Lstm(width=512, vocab=8000), few, 128, None, "sgd"),
        "tune_infer": tunable(lambda: p.GPT(**small), tokens, 512, torch.bfloat16, infer=True),
    }


# ---- the parent ----


def child(pipe, job, name, make, options):
    one = {"case": name, "error": None}
    torch.set_num_threads(2)

    def ask(size):
        pipe.send(("ask", size))
        pipe.recv()

    text = None
    try:
        text = job(one, make, options, ask)
    except BaseException as reason:
        one["error"] = "".join(traceback.format_exception(type(reason), reason, reason.__traceback__))[-3000:]
        text = f"{name} ERROR {type(reason).__name__}: {' '.join(str(reason).split())[:300]}"
    pipe.send(("done", one, text))
    pipe.close()
    os._exit(0)


def run_all(jobs, workers, budget, options, deadline):
    """Runs jobs (function, name, make), each in a forked process; yields their results. CUDA is not started in this process."""
    forks = multiprocessing.get_context("fork")
    waiting, open_, granted, asked = collections.deque(jobs), {}, {}, []
    while waiting or open_:
        late = time.monotonic() > deadline
        while waiting and len(open_) < workers and not late:
            job, name, make = waiting.popleft()
            here, there = forks.Pipe()
            process = forks.Process(target=child, args=(there, job, name, make, options))
            process.start()
            there.close()
            open_[here] = (process, name)
        if late and waiting:
            print(f"# out of time: {len(waiting)} programs were left out", flush=True)
            waiting.clear()
        if not open_:
            break
        if time.monotonic() > deadline + 20:
            for process, name in open_.values():
                print(f"{name} ERROR out of time", flush=True)
                process.terminate()
            return
        for pipe in multiprocessing.connection.wait(list(open_), timeout=1):
            process, name = open_[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                process.join()
                message = ("done", {"case": name, "error": f"died: {process.exitcode}"}, f"{name} ERROR the process died with {process.exitcode}")
            if message[0] == "ask":
                asked.append((pipe, min(message[1], budget)))
                continue
            del open_[pipe]
            granted.pop(pipe, None)
            asked = [one for one in asked if one[0] is not pipe]
            process.join(10)
            yield message[1], message[2]
        for pipe, size in list(asked):
            if sum(granted.values()) + size <= budget:
                asked.remove((pipe, size))
                granted[pipe] = size
                pipe.send("go")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--estimate-only", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--parts", default="kernels,memory,tune,time")
    parser.add_argument("--state", default=os.path.join(os.environ.get("OUT", "."), "estimate_gpu.jsonl"))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=440)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--gpu", default="H200")
    options = parser.parse_args()
    began = time.monotonic()
    tempfile.tempdir = tempfile.mkdtemp(prefix="estimate-bench-")  # children end without cleaning up
    estimate_programs.add_transformers()
    makes = {**estimate_programs.CASES, **estimate_programs_more.PROGRAMS, **estimate_programs_varied.PROGRAMS}
    tunes = {} if options.estimate_only else tune_programs()
    wanted = [one for one in options.only.split(",") if one]
    named = lambda makes: [one for one in makes if not wanted or any(one.startswith(w) for w in wanted)]  # noqa: E731
    parts = options.parts.split(",")
    total = 139 * GIB
    if not options.estimate_only:
        with multiprocessing.get_context("fork").Pool(1) as pool:  # a process that started CUDA cannot be forked
            total = pool.apply(device_bytes)
    budget = total - options.workers * CONTEXT // 2
    results = read_state(options.state)
    missing = lambda part, names: [one for one in names if f"{part} {one}" not in results]  # noqa: E731
    began_with = len(results)
    state = open(options.state, "a")

    def take(part, found):
        for one, text in found:
            results[f"{part} {one['case']}"] = {"part": part, **one}
            json.dump({"part": part, **one}, state)
            state.write("\n")
            state.flush()
            if text:
                print(text, flush=True)

    if began_with:
        print(f"# {began_with} results of an earlier call are in {options.state}", flush=True)
    end = began + options.seconds
    if "kernels" in parts and missing("kernels", ["sweep"]) and not wanted and not options.estimate_only:
        take("kernels", run_all([(sweep_job, "sweep", None)], 1, budget, options, end))
    if "kernels" in parts and missing("kernels", ["operators"]) and not wanted:
        take("kernels", run_all([(kernels_job, "operators", None)], 1, budget, options, end))
    if "tune" in parts:
        take("tune", run_all([(tune_job, one, tunes[one]) for one in missing("tune", named(tunes))], options.workers, budget, options, end))
    if "memory" in parts:
        last = end - (0.1 * options.seconds if "time" in parts and not options.estimate_only else 0)
        take("memory", run_all([(memory_job, one, makes[one]) for one in missing("memory", named(makes))], options.workers, budget, options, last))
    if "time" in parts and not options.estimate_only:
        print(f"# memory and tune took {time.monotonic() - began:.0f} s", flush=True)
        take("time", run_all([(time_job, one, makes[one]) for one in missing("time", named(makes)) if one in TIMED], 1, budget, options, end))
    state.close()
    shutil.rmtree(tempfile.tempdir, True)
    return totals(joined(results), began)


def read_state(path):
    """Returns the results of earlier calls, by part and program. A last line that was cut off is left out."""
    results = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    one = json.loads(line)
                except ValueError:
                    continue
                results[f"{one['part']} {one['case']}"] = one
    return results


def joined(results):
    """Returns one result per program, with all of its parts; those of failed parts have an error."""
    programs = {}
    for one in results.values():
        if one["part"] == "kernels":
            continue
        known = programs.setdefault(one["case"], {"error": None})
        known.update({key: value for key, value in one.items() if key != "error" or value})
    return list(programs.values())


def device_bytes():
    return torch.cuda.get_device_properties(0).total_memory


def totals(results, began):
    print(f"# {len(results)} programs, {sum(1 for one in results if one['error'])} errors, {time.monotonic() - began:.0f} s, PyTorch {torch.__version__}")
    measured = [one for one in results if one.get("reserved_error") is not None]
    if measured:
        tries = [f for one in measured for f in one.get("fits", [])]
        for what in ("reserved", "live"):
            errors = sorted(abs(one[f"{what}_error"]) for one in measured)
            within = lambda most: sum(1 for e in errors if e <= most) / len(errors)  # noqa: E731
            worst = max(measured, key=lambda one: abs(one[f"{what}_error"]))
            print(
                f"case=estimate_{what} programs={len(errors)} median={100 * statistics.median(errors):.2f}% p95={100 * errors[min(len(errors) - 1, int(0.95 * len(errors)))]:.2f}%"
                f" within_5%={within(0.05):.2f} within_10%={within(0.1):.2f} worst={worst['case']}:{100 * worst[f'{what}_error']:+.1f}%"
            )
        print(f"case=estimate_fits wrong={sum(1 for f in tries if f['said'] != f['fits'])}/{len(tries)}")
        ranges = [r for one in measured for r in one.get("ranges", [])]
        yes, no = ([r for r in ranges if r["said"] == said] for said in ("yes", "no"))
        widths = sorted((one["estimate"]["needs_high_bytes"] - one["estimate"]["needs_low_bytes"]) / one["estimate"]["needs_bytes"] for one in measured)
        print(
            f"case=estimate_verdict wrong_yes={sum(1 for r in yes if not r['fits'])}/{len(yes)} wrong_no={sum(1 for r in no if r['fits'])}/{len(no)}"
            f" range_median={100 * statistics.median(widths):.0f}% range_most={100 * widths[-1]:.0f}%"
        )
    tuned = [one for one in results if one.get("largest")]
    if tuned:
        good = sum(1 for one in tuned if one["short"] <= 0.05 or one["largest"] - one["picked"] <= 1)
        print(f"case=tune programs={len(tuned)} within_5%_or_one={good} worst={100 * max(one['short'] for one in tuned):.1f}% failed_steps={sum(one['failed_steps'] for one in tuned)}")
    timed = [one for one in results if one.get("measured_ms")]
    for one in timed:
        ratio = f"{one['simulated_ms'] / one['measured_ms']:.2f}" if one.get("simulated_ms") else "-"
        print(f"time {one['case']} simulated {one.get('simulated_ms', 0):.1f} ms measured {one['measured_ms']:.1f} ms ratio {ratio} device {one['device_ms']:.1f} ms operators {one['operators']}")
    if timed:
        ours, device = collections.Counter(), collections.Counter()
        for one in timed:
            ours.update(one.get("simulated_by_operator", {}))
            device.update(one.get("measured_by_operator", {}))
        print("# ms by operator, simulated/measured: " + ", ".join(f"{name} {ours[name]:.1f}/{ms:.1f}" for name, ms in device.most_common(24)))
        ratios = sorted(one["simulated_ms"] / one["measured_ms"] for one in timed if one.get("simulated_ms"))
        if ratios:
            print(f"case=step_time programs={len(ratios)} median_ratio={statistics.median(ratios):.2f} least={ratios[0]:.2f} most={ratios[-1]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
