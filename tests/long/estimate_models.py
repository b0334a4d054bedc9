"""Peak live of stowage.estimate beside the peak of the same program on the CPU, which PyTorch's profiler counts.

The profiler sees the CPU's allocator and shares no code with the estimate. CPU and CUDA kernels keep different temporaries, and matrix
products on a GPU have workspaces, so only some programs must agree exactly. Prints "ok NAME" or "FAIL NAME: why".
"""

import gc
import os
import statistics
import sys
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "bench")]
warnings.simplefilter("ignore")

import estimate_programs_more as more  # noqa: E402
from awkward_models import MODELS  # noqa: E402

import stowage  # noqa: E402

MIB = 1 << 20
#: Programs whose sizes depend on values, and the operator that the message must name.
REFUSED = {"packed_rnn": "_pack_padded_sequence", "boolean_mask": "index"}
#: Programs that take another branch with the assumed values, whose sparse temporaries are not counted, that use host memory on purpose,
#: which the CPU run counts too, or whose cuDNN workspaces are larger than their tensors at this size.
OTHER = {"control_flow", "sparse_embedding", "optimizer_state_on_host", "activations_on_host", "gan_gradient_penalty"}
#: Programs whose tensors are the same on CPU and GPU.
EXACT = {"custom_autograd", "buffers_in_forward", "linalg", "complex_fft", "hooks", "custom_optimizer", "byte_optimizer", "data_parallel_one_rank", "gnn_scatter_attention"}
#: torch.compile runs a C++ compiler on the CPU for a minute; tests of the package cover it.
LEFT_OUT = {"compiled_language"}


def cpu_peak(make, steps):
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step = make()
        for i in range(steps):
            step(i)
    live = peak = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def programs():
    """Yields (name, function that makes the program on the CPU, the same for a GPU)."""

    def awkward(make, device):
        def made():
            step = make(device)
            return lambda i: step()

        return made

    def other(make, device):
        def made():
            more.DEVICE, more.SMALL = device, True
            return make()

        return made

    for name, make in MODELS.items():
        yield name, awkward(make, "cpu"), awkward(make, "cuda")
    for name, make in more.PROGRAMS.items():
        if name not in LEFT_OUT:
            yield name, other(make, "cpu"), other(make, "cuda")


def main():
    failed, errors = 0, []
    for name, on_cpu, on_gpu in programs():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        why = ""
        try:
            found = stowage.estimate(on_gpu, gpu="A100", steps=2)
        except stowage.Unsupported as refused:
            said = str(refused)
            if name not in REFUSED or REFUSED[name] not in said or ".py:" not in said or "stowage run --record" not in said:
                why = said
        else:
            # The workspaces of cuBLAS stay; others are gone when the peak comes.
            workspaces = sum(one["bytes"] for one in found.data["beside"] if one["what"].lower().startswith("cublas"))
            cpu, gpu = cpu_peak(on_cpu, 2), found.peak_live - workspaces
            error = gpu / cpu - 1
            print(f"  {name}: estimate {gpu / MIB:.2f} MiB and {workspaces / MIB:.2f} of cuBLAS, CPU {cpu / MIB:.2f} MiB, {100 * error:+.1f}%", flush=True)
            if name in REFUSED:
                why = "was estimated, though its sizes depend on values"
            elif name in EXACT and abs(gpu - cpu) > 0.05 * MIB:
                why = f"{gpu} B, on the CPU {cpu} B"
            elif name not in OTHER:
                errors.append(abs(error))
                if abs(error) > 0.6:
                    why = f"{gpu} B, on the CPU {cpu} B"
        failed += bool(why)
        print(f"FAIL estimate_models/{name}: {why}" if why else f"ok estimate_models/{name}", flush=True)
    if len(sys.argv) == 1:
        good = len(errors) >= 30 and statistics.median(errors) <= 0.06
        print(f"{'ok' if good else 'FAIL'} estimate_models/median: {100 * statistics.median(errors):.1f}% of {len(errors)} programs")
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
