#!/usr/bin/env python3
"""Batches on a device: batches.py PART. The same bytes as the file's, in order and shuffled, resumed, beside work on other
streams; in torch's tensors and, where torch is not to be had, CuPy's arrays. Prints a result line for each."""
import os
import sys
import tempfile

import numpy as np

import stowage

ROWS, COLUMNS, BATCH = 40_000, 513, 250  # rows of 2052 bytes: batches begin at all kinds of offsets


def ok(name, *words):
    print("ok", name, *words, flush=True)


def files(folder):
    paths = [folder + "/x.npy", folder + "/y.npy"]
    x = np.arange(ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
    np.save(paths[0], x)
    np.save(paths[1], np.arange(ROWS))
    return paths, x


def part_torch(folder):
    import torch

    paths, x = files(folder)
    there = torch.from_numpy(x).cuda()
    for shuffle in (False, True):
        b = stowage.batches(paths, BATCH, shuffle=shuffle, device="cuda", memory="16M")
        for epoch in range(2):
            seen = []
            for got, rows in b:
                assert got.is_cuda and got.dtype == torch.float32 and len(got) == len(rows)
                assert torch.equal(got, there[rows])
                seen.append(rows)
            seen = torch.cat(seen).cpu().numpy()
            assert np.array_equal(np.sort(seen), np.arange(ROWS)) and (shuffle or np.array_equal(seen, np.arange(ROWS)))
    ok("batches_on_the_device_are_the_files_rows")

    # Every batch is modified in place while later ones arrive; only the order of the stream separates them.
    total = torch.zeros(COLUMNS, device="cuda", dtype=torch.float64)
    heavy = torch.randn(2048, 2048, device="cuda")
    for got in stowage.batches(paths[0], BATCH, device="cuda", memory="16M"):
        heavy = torch.tanh(heavy @ heavy)  # the device lags behind the program
        total += got.sum(0, dtype=torch.float64)
        got.zero_()
    assert torch.allclose(total, there.sum(0, dtype=torch.float64))
    ok("batches_are_whole_when_the_device_lags_behind")

    b = stowage.batches(paths, BATCH, shuffle=True, seed=3, device="cuda", memory="16M")
    want = [rows.cpu() for _, rows in b]
    b.set_epoch(0)
    for _ in range(17):
        next(b)
    again = stowage.batches(paths, BATCH, shuffle=True, seed=9, device="cuda", memory="16M")
    again.load_state_dict(b.state_dict())
    rest = [rows.cpu() for _, rows in again]
    assert len(rest) == len(want) - 17 and all(torch.equal(a, c) for a, c in zip(want[17:], rest))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for got, rows in stowage.batches(paths, BATCH, device="cuda", dtype=["float16", None], memory="16M"):
            assert got.dtype == torch.float16 and torch.equal(got, there[rows].half())
    np.array([0x3F80, 0x4000, 0xC040], dtype="u2").tofile(folder + "/b.bin")
    got = next(stowage.batches(folder + "/b.bin", 2, raw_dtype="bfloat16", device="cuda:0"))
    assert got.dtype == torch.bfloat16 and got.tolist() == [1.0, 2.0]
    ok("batches_on_the_device_resume_convert_and_follow_the_programs_stream")

    # Abandoned half way, many times: neither device memory nor pinned memory stays allocated.
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    for i in range(50):
        b = stowage.batches(paths, BATCH, device="cuda", memory="16M")
        for _ in range(i % 4):
            next(b)
        if i % 2:
            b.close()
        del b
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= held, (torch.cuda.memory_allocated(), held)
    with open("/proc/self/status") as status:
        resident = next(line for line in status if line.startswith("VmRSS")).split()[1]
    ok("batches_given_up_half_way_leave_nothing_on_the_device:", f"{int(resident) >> 10} MiB resident")


    # In our own heap: uses only its memory, reuses it in stream order, and frees all of it.
    with stowage.heap("0", vram="64M") as heap:
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        total = torch.zeros(COLUMNS, device="cuda", dtype=torch.float64)
        for shuffle in (False, True):
            for got, rows in stowage.batches(paths, BATCH, shuffle=shuffle, device=heap, memory="16M"):
                heavy = torch.tanh(heavy @ heavy)
                assert got.shape == (len(rows), COLUMNS) and got.dtype == torch.float32
                total += got.sum(0, dtype=torch.float64)
                got.zero_()
        assert torch.allclose(total, 2 * there.sum(0, dtype=torch.float64))
        peak = heap.stats()["peak_live_bytes"]
        del got, rows, total
        torch.cuda.synchronize()
        heap.trim()  # what was freed counts as live until the heap has looked at its events
        assert heap.stats()["live_bytes"] == 0, heap.stats()
        assert torch.cuda.memory_allocated() <= held, (torch.cuda.memory_allocated(), held)
        ok("batches_in_a_heap_of_ours:", f"{peak >> 10} KiB live at the peak")


def part_cupy(folder):
    sys.modules["torch"] = None  # as where it is not installed
    import cupy

    paths, x = files(folder)
    there = cupy.asarray(x)
    for own in (False, True):
        if own:
            stowage.use_cupy()
        for shuffle in (False, True):
            seen = []
            for got, rows in stowage.batches(paths, BATCH, shuffle=shuffle, device="cuda", memory="16M"):
                assert isinstance(got, cupy.ndarray) and bool((got == there[rows]).all())
                got += 1
                seen.append(rows)
            assert np.array_equal(np.sort(cupy.asnumpy(cupy.concatenate(seen))), np.arange(ROWS))
        ok("batches_as_cupys_arrays" + ("_on_our_heap" if own else ""))


with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as where:
    globals()["part_" + sys.argv[1]](where)
