#!/usr/bin/env python3
"""Parts of the Python package on a device, in one process: python_package.py PART… Prints result lines, and a JSON line for `bare`
and `spill`.

A limit and a shim belong to a process, so parts that need another one run in another process; the others share one, because importing
PyTorch takes seconds.
"""
import gc
import json
import os
import sys
import traceback

MIB = 1 << 20
GIB = 1 << 30


def ok(name, *words):
    print("ok", name, *words, flush=True)


def train(steps=6):
    """Runs a training loop with about 7 GiB live at its peak. Returns what it computes."""
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, device="cuda") for _ in range(6)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(steps):
        x = torch.randn(2048, 8192, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "peak_mib": torch.cuda.max_memory_allocated() // MIB}


def part_bare():
    print(json.dumps(train()), flush=True)


def part_spill_late():
    import torch  # noqa: F401

    part_spill()


def part_spill():
    import ctypes

    import stowage

    enabled = stowage.enable(vram="5G", spill="auto")
    assert enabled.shim == "loaded into this process", enabled
    result = train()
    process = ctypes.CDLL(None)
    process.stow_shim_bytes.restype, process.stow_shim_bytes.argtypes = ctypes.c_uint64, [ctypes.c_uint, ctypes.c_char_p]
    result["spilled_mib"] = process.stow_shim_bytes(0, b"spilled") // MIB
    print(json.dumps(result), flush=True)


def part_release():
    import stowage
    import torch

    kept = [torch.ones(256 * MIB, device="cuda")]
    lost = torch.ones(512 * MIB, device="cuda")
    del lost
    result = stowage.release()
    assert result.device_bytes >= 2 * GIB, result
    assert any("local kept of" in path and path.startswith("local kept") for line in result.rest for path in line[2]) or any(
        "[0]" in path for line in result.rest for path in line[2]
    ), result
    part = kept[0][:1000]
    found = stowage.holders(part)
    assert "a view of 1.0 GiB on cuda:0" in found.title, found
    print(result)
    ok("release_frees_the_cache_and_names_who_holds_the_rest", f"freed {result.device_bytes // MIB} MiB of the device")


def stays_within(gib):
    """Checks that PyTorch sees a device of that size and cannot allocate 4 GiB beyond it. Returns the size it sees."""
    import torch

    inside = torch.ones(256 * MIB, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    assert total <= gib * GIB, total
    try:
        torch.ones(1024 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError(f"4 GiB within a limit of {gib}, of which 1 is taken")
    assert inside.sum().item() == 256 * MIB
    return f"mem_get_info reports {total // MIB} MiB"


def part_limit():
    import stowage

    stowage.limit(vram="4G")
    ok("a_limit_set_before_the_import_holds", stays_within(4))


def part_late():
    import stowage
    import torch

    torch.ones(1, device="cuda")
    try:
        stowage.enable(vram="3G")
    except stowage.StowageError as error:
        assert "stowage.restart(vram='3G', spill='auto')" in str(error), error
        assert "CUDA has started" in str(error), error
    else:
        raise AssertionError("nothing was said")
    ok("enabling_after_cuda_has_started_is_refused_with_the_next_step")


def part_after_import():
    """The import has loaded the driver; CUDA has not started."""
    import torch  # noqa: F401
    import stowage

    print(stowage.limit(vram="3G"))
    ok("a_limit_set_after_the_import_holds", stays_within(3))


def part_after_cupy():
    """CuPy's import loads the driver too."""
    import cupy
    import stowage

    stowage.limit(vram="3G")
    inside = cupy.ones(128 * MIB, dtype=cupy.float64)
    total = cupy.cuda.runtime.memGetInfo()[1]
    assert total <= 3 * GIB, total
    try:
        cupy.ones(512 * MIB, dtype=cupy.float64)
    except cupy.cuda.memory.OutOfMemoryError as error:
        said = stowage.explain(error)
    else:
        raise AssertionError("4 GiB within a limit of 3")
    assert said.data["numbers"]["asked_bytes"] == 4 * GIB, said
    assert float(inside.sum()) == 128 * MIB
    ok("a_limit_set_after_the_import_of_cupy_holds", f"memGetInfo reports {total // MIB} MiB")


def part_restart():
    """The last part in its process: restarts the process, which comes back here."""
    import stowage
    import torch

    torch.ones(1, device="cuda")
    enabled = stowage.restart(vram="3G", spill=None)
    assert "preloaded" in enabled.shim, enabled
    try:
        torch.ones(1024 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError:
        ok("restart_brings_the_process_back_with_the_shim")
    else:
        raise AssertionError("4 GiB within a limit of 3")


def part_explain():
    import stowage

    stowage.enable(vram="4G", spill=None)
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, device="cuda") for _ in range(8)])
    kept = []
    try:
        for number in range(1000):
            with stowage.step(f"step {number}"):
                kept.append(model(torch.randn(4096, 2048, device="cuda")).sum())
    except torch.cuda.OutOfMemoryError as error:
        made = stowage.explain(error)
    print(made.text)
    assert made.cause in ("graph_kept", "no_grad_missing", "leak"), made.cause
    ok("an_out_of_memory_error_is_explained_from_what_was_live", made.cause)
    kept.clear()
    gc.collect()
    from stowage._explain import annotate

    try:
        torch.ones(8192 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        annotate(error)
        notes = "\n".join(getattr(error, "__notes__", [])) or str(error)
    assert "stowage: " in notes, notes
    ok("the_exception_carries_it_as_a_note")


def part_record():
    import tempfile

    import stowage
    import torch

    def work(path, steps):
        with stowage.record(path):
            for _ in range(steps):
                with stowage.step():
                    x = torch.randn(1024, 1024, device="cuda")
                    y = (x @ x).sum().item()
        assert y == y
        return stowage.report(path).data["runs"][0]

    with tempfile.TemporaryDirectory() as folder:
        first, second = (work(os.path.join(folder, name), 5) for name in ("first.stow", "second.stow"))
        shown = stowage.report(os.path.join(folder, "second.stow"))
        print(shown.text)
        assert len(shown.page) > 10_000
    assert second["alloc_count"] <= first["alloc_count"], "the second recording begins with the first one"
    assert second["iterations_from"] == "marks" and len(second["iterations"]) >= 4, second["iterations_from"]
    ok("pytorch_is_recorded_and_reported_with_its_steps", f"{second['alloc_count']} allocations")


def part_info():
    import stowage

    seen = stowage.info()
    print(seen)
    assert seen.data["devices"] and "vram" in repr(seen)
    from stowage import _memory

    assert _memory.devices()[0].total_bytes > GIB
    ok("info_reports_the_device", seen.data["devices"][0]["name"])


def part_jax():
    import stowage

    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    stowage.limit(vram="3G")
    import jax.numpy

    inside = jax.numpy.ones(64 * MIB)
    try:
        jax.numpy.ones(1024 * MIB).block_until_ready()
    except Exception as error:
        from stowage._explain import annotate

        made = annotate(error)
        assert made is not None, error
        print(made.text)
        assert "stowage: " in "\n".join(getattr(error, "__notes__", [str(error)]))
    else:
        raise AssertionError("4 GiB within a limit of 3")
    assert float(inside.sum()) == 64 * MIB
    ok("a_limit_holds_for_jax_and_its_error_carries_the_explanation", f"asked {made.data['numbers'].get('asked_bytes', 0) // MIB} MiB")


def part_cupy():
    import cupy
    import numpy
    import stowage

    def work():
        x = cupy.arange(1 << 22, dtype=cupy.float32).reshape(2048, 2048) / 1e6
        total = cupy.float32(0)
        for turn in range(20):
            y = x @ x.T + turn
            total = total + y[::7, ::5].sum()
        made = cupy.cuda.get_current_stream().record()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.wait_event(made)
            z = cupy.sort(y.ravel())
            stream.synchronize()
        return {"sum": cupy.asnumpy(total), "matrix": cupy.asnumpy(y), "sorted": cupy.asnumpy(z[::1000])}

    before = work()
    cupy.get_default_memory_pool().free_all_blocks()
    stowage.use_cupy(vram="2G")
    after = work()
    for name, array in before.items():
        assert numpy.array_equal(array, after[name]), f"{name}: off by {numpy.abs(array - after[name]).max()}"
    stats = stowage.info().data["process"]["heaps"]
    assert stats and stats[0]["peak_live_bytes"] > 16 * MIB, stats
    try:
        cupy.zeros(1 << 30, dtype=cupy.float64)
    except cupy.cuda.memory.OutOfMemoryError as error:
        assert "stowage: " in "\n".join(getattr(error, "__notes__", ["stowage: "])), error
    else:
        raise AssertionError("8 GiB within a heap of 2")
    ok("cupy_on_our_heap_gives_the_same_results", f"peak {stats[0]['peak_live_bytes'] // MIB} MiB live")


def numba_work():
    """Runs a Numba kernel. Returns what it computed."""
    import numpy

    if not hasattr(numpy, "row_stack"):
        # NumPy 2.5 removed this name, which numba-cuda 0.30 uses whenever it compiles: without it no kernel compiles, with or without
        # Stowage.
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = 2 * x[i] + y[i]

    x = numpy.arange(1 << 20, dtype=numpy.float32)
    for _ in range(10):
        dx, dy = cuda.to_device(x), cuda.to_device(x * 3)
        out = cuda.device_array_like(dx)
        add[(x.size + 255) // 256, 256](dx, dy, out)
        result = out.copy_to_host()
    assert numpy.array_equal(result, 2 * x + x * 3)
    return result


def part_numba_bare():
    """Runs without Stowage: if this fails, Numba does not work here at all."""
    numba_work()


def part_numba():
    import stowage

    by_environment = "NUMBA_CUDA_MEMORY_MANAGER" in os.environ
    if not by_environment:
        stowage.use_numba(vram="2G")
    numba_work()
    heaps = stowage.info().data["process"]["heaps"]
    assert heaps and heaps[0]["peak_live_bytes"] >= 8 * MIB, heaps
    ok(f"numba_on_our_heap_gives_the_same_results{'_by_environment' if by_environment else ''}")
    if not by_environment:
        from numba import cuda

        try:
            cuda.device_array(1 << 30, dtype="float64")
        except MemoryError as error:
            assert "8.0 GiB" in str(error), error
            ok("numba_past_the_heap_is_refused_with_the_reason", str(error).split(";")[0])
        else:
            raise AssertionError("8 GiB within a heap of 2")


def part_cell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext stowage\nimport torch; torch.ones(1, device='cuda')")
    from stowage import _show

    seen = []
    _show.show = seen.append
    shell.run_cell_magic("stowage", "", "kept = torch.ones(64 << 20, device='cuda')\nlost = torch.ones(128 << 20, device='cuda'); del lost")
    print(seen[0])
    name, peak, after = seen[0].devices[0]
    assert abs(peak - 768 * MIB) < 8 * MIB and abs(after - 256 * MIB) < 8 * MIB, seen[0]
    assert any("kept" in paths for _, _, paths in seen[0].survivors), seen[0].survivors
    ok("a_cell_is_measured_on_the_device", f"peak {peak // MIB} MiB, after {after // MIB} MiB")


def main():
    parts = sys.argv[1:]
    if "restart" in parts and os.environ.get("STOWAGE_PYTHON_LIMITS") is not None:
        parts = ["restart"]  # this is the second life
    failed = False
    for name in parts:
        try:
            globals()[f"part_{name}"]()
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print("FAIL", f"python_{name}", flush=True)
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
