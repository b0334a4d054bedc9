#!/usr/bin/env python3
"""One part of the Python package on a card: python_package.py PART. Prints result lines, or a JSON line for `train`.

Each part is a process of its own, because a limit and a shim are a process's.
"""
import gc
import json
import sys

MIB = 1 << 20
GIB = 1 << 30


def ok(name, *words):
    print("ok", name, *words, flush=True)


def train(steps=6):
    """A training loop with about 7 GiB live at its peak; what it computes."""
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


def part_train(how):
    import stowage

    if how == "spill":
        enabled = stowage.enable(vram="5G", spill="auto")
        assert enabled.shim == "loaded into this process", enabled
    result = train()
    if how == "spill":
        import ctypes

        process = ctypes.CDLL(None)
        process.stow_shim_bytes.restype, process.stow_shim_bytes.argtypes = ctypes.c_uint64, [ctypes.c_uint, ctypes.c_char_p]
        result["spilled_mib"] = process.stow_shim_bytes(0, b"spilled") // MIB
    print(json.dumps(result))


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
    ok("release_frees_the_cache_and_names_who_holds_the_rest", f"freed {result.device_bytes // MIB} MiB of the card")


def part_limit():
    import stowage

    stowage.limit(vram="3G")
    import torch

    inside = torch.ones(256 * MIB, device="cuda")
    total = torch.cuda.mem_get_info()[1]
    assert total <= 3 * GIB, total
    try:
        torch.ones(1024 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("4 GiB within a limit of 3")
    assert inside.sum().item() == 256 * MIB
    ok("a_limit_set_before_the_import_holds", f"mem_get_info tells {total // MIB} MiB")


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
    import torch  # noqa: F401
    import stowage

    try:
        print(stowage.limit(vram="3G"))
    except stowage.StowageError as error:
        assert "stowage.restart" in str(error), error
        ok("after_import_torch_it_is_told_that_the_driver_is_loaded")
        return
    try:
        torch.ones(1024 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError:
        ok("after_import_torch_a_limit_still_holds")
    else:
        raise AssertionError("4 GiB within a limit of 3")


def part_restart():
    import stowage

    import torch

    torch.ones(1, device="cuda") if "--again" in sys.argv else None
    enabled = stowage.restart(vram="3G", spill=None)
    assert "since its start" in enabled.shim, enabled
    try:
        torch.ones(1024 * MIB, device="cuda")
    except torch.cuda.OutOfMemoryError:
        ok("restart_brings_the_process_back_beneath_the_shim")
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
    import os
    import tempfile

    import stowage
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.stow")
        with stowage.record(path):
            for number in range(5):
                with stowage.step():
                    x = torch.randn(1024, 1024, device="cuda")
                    y = (x @ x).sum().item()
        assert y == y
        text = stowage.report(path).text
        print(text)
        assert len(stowage.report(path).page) > 10_000
    ok("pytorch_is_recorded_and_reported")


def part_info():
    import stowage

    seen = stowage.info()
    print(seen)
    assert seen.data["devices"] and "vram" in repr(seen)
    from stowage import _memory

    assert _memory.cards()[0].total_bytes > GIB
    ok("info_tells_the_card", seen.data["devices"][0]["name"])


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
        with cupy.cuda.Stream(non_blocking=True) as stream:
            z = cupy.sort(y.ravel())
            stream.synchronize()
        return cupy.asnumpy(total), cupy.asnumpy(z[::1000])

    before = work()
    cupy.get_default_memory_pool().free_all_blocks()
    stowage.use_cupy(vram="2G")
    after = work()
    assert numpy.array_equal(before[0], after[0]) and numpy.array_equal(before[1], after[1])
    stats = stowage.info().data["process"]["heaps"]
    assert stats and stats[0]["peak_live_bytes"] > 16 * MIB, stats
    try:
        cupy.zeros(1 << 30, dtype=cupy.float64)
    except cupy.cuda.memory.OutOfMemoryError as error:
        assert "stowage: " in "\n".join(getattr(error, "__notes__", ["stowage: "])), error
    else:
        raise AssertionError("8 GiB within a heap of 2")
    ok("cupy_on_our_heap_gives_the_same_results", f"peak {stats[0]['peak_live_bytes'] // MIB} MiB live")


def part_numba():
    import numpy
    import stowage

    if "--environment" not in sys.argv:
        stowage.use_numba(vram="2G")
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
    heaps = stowage.info().data["process"]["heaps"]
    assert heaps and heaps[0]["peak_live_bytes"] >= 8 * MIB, heaps
    ok("numba_on_our_heap_gives_the_same_results" + ("_by_environment" if "--environment" in sys.argv else ""))


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
    ok("a_cell_is_measured_on_the_card", f"peak {peak // MIB} MiB, after {after // MIB} MiB")


def part_notebook():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    book = json.load(open(sys.argv[2], encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            done = shell.run_cell("".join(cell["source"]))
            allowed = "raises-exception" in cell["metadata"].get("tags", [])
            assert done.success or allowed, "".join(cell["source"])
    ok("the_notebook_of_the_examples_runs_on_a_card")


if __name__ == "__main__":
    part = globals()[f"part_{sys.argv[1]}"]
    part(sys.argv[2]) if sys.argv[1] == "train" else part()
