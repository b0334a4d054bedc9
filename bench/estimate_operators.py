"""Single operators for gpu_estimate_bench.py: what a kernel allocates besides its result, by formula beside a device.

OPERATORS has a function for each. It makes the inputs on DEVICE and returns a function that runs the operator once. Most of them are
convolutions: cuDNN chooses their workspaces, and only a device shows them. SWEEP has many more convolutions and RNNs of random shapes, the
same in every run, whose allocations are only recorded.
"""

import random

import torch
import torch.nn.functional as F

DEVICE = "cuda"
BF, HF = torch.bfloat16, torch.float16
LAST = torch.channels_last


def zeros(*shape, kind=torch.float32, grad=False):
    return torch.zeros(*shape, dtype=kind, device=DEVICE, requires_grad=grad)


def plain(inputs, run):
    """An operator without gradients."""

    def make():
        given = inputs()

        def step():
            with torch.no_grad():
                return run(*given)

        return step

    return make


def trained(inputs, run):
    """An operator and its backward pass."""

    def make():
        given = inputs()

        def step():
            out = run(*given)
            out = out[0] if isinstance(out, tuple) else out
            torch.autograd.grad(out, [one for one in given if one.requires_grad], torch.ones_like(out))

        return step

    return make


def convolution(batch, into, out, size, kernel, stride=1, kind=torch.float32, last=False, groups=1, dims=2, transposed=False):
    def inputs():
        x = zeros(batch, into, *[size] * dims, kind=kind)
        weight = zeros(*((into, out // groups) if transposed else (out, into // groups)), *[kernel] * dims, kind=kind)
        if last:
            x, weight = x.to(memory_format=LAST), weight.to(memory_format=LAST)
        return x.requires_grad_(), weight.requires_grad_()

    named = {"stride": stride, "padding": (kernel - stride + 1) // 2, "groups": groups}
    run = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    return inputs, lambda x, w: run(x, w, **named)


def attention(batch, heads, rows, width, kind=BF, kv_heads=None, mask=False, causal=False, dropout=0.0, columns=None):
    def inputs():
        key = (batch, kv_heads or heads, columns or rows, width)
        given = [zeros(batch, heads, rows, width, kind=kind, grad=True), zeros(*key, kind=kind, grad=True), zeros(*key, kind=kind, grad=True)]
        return (*given, zeros(batch, 1, rows, columns or rows, kind=kind)) if mask else tuple(given)

    named = {"is_causal": causal, "dropout_p": dropout, "enable_gqa": kv_heads is not None}
    return inputs, lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, attn_mask=m, **named)


OPERATORS = {}


def add(name, inputs, run, backward=True):
    OPERATORS[f"{name} forward"] = plain(inputs, run)
    if backward:
        OPERATORS[f"{name} both"] = trained(inputs, run)


for _kind, _name in ((torch.float32, "fp32"), (BF, "bf16"), (HF, "fp16")):
    for _batch, _into, _out, _size, _kernel, _stride in (
        (64, 3, 64, 224, 7, 2),
        (64, 64, 64, 56, 3, 1),
        (64, 64, 256, 56, 1, 1),
        (64, 256, 128, 56, 1, 2),
        (64, 128, 128, 56, 3, 2),
        (64, 256, 256, 14, 3, 1),
        (64, 512, 512, 7, 3, 1),
        (8, 64, 64, 256, 3, 1),
        (8, 512, 256, 64, 3, 1),
        (16, 3, 32, 128, 3, 1),
        (16, 30, 34, 100, 5, 1),
    ):
        add(f"conv {_name} {_batch}x{_into}x{_size} {_kernel}x{_kernel}/{_stride} to {_out}", *convolution(_batch, _into, _out, _size, _kernel, _stride, _kind))
    add(f"conv {_name} last", *convolution(64, 64, 64, 56, 3, 1, _kind, last=True))
    add(f"conv {_name} depthwise", *convolution(32, 96, 96, 56, 7, 1, _kind, groups=96))
    add(f"conv {_name} depthwise last", *convolution(32, 96, 96, 56, 7, 1, _kind, last=True, groups=96))
    add(f"conv {_name} groups", *convolution(32, 128, 128, 56, 3, 1, _kind, groups=32))
    add(f"conv {_name} volume", *convolution(2, 32, 32, 64, 3, 1, _kind, dims=3))
    add(f"conv {_name} transposed", *convolution(16, 256, 128, 32, 2, 2, _kind, transposed=True))
    add(f"conv1d {_name}", *convolution(32, 512, 512, 2000, 3, 1, _kind, dims=1))
    add(f"attention {_name}", *attention(8, 12, 1024, 64, _kind))
    add(f"attention {_name} causal", *attention(8, 12, 1000, 64, _kind, causal=True))
    add(f"attention {_name} mask", *attention(8, 12, 1001, 64, _kind, mask=True))
    add(f"attention {_name} dropout", *attention(8, 12, 1024, 64, _kind, dropout=0.1))
    add(f"attention {_name} width 50", *attention(8, 12, 512, 50, _kind))
    add(f"attention {_name} width 256", *attention(4, 8, 512, 256, _kind))
    add(f"attention {_name} cross", *attention(8, 12, 200, 64, _kind, columns=777))
    add(f"attention {_name} one row", *attention(8, 12, 1, 64, _kind, columns=4096), False)
    add(f"softmax {_name}", lambda k=_kind: (zeros(8, 12, 512, 512, kind=k, grad=True),), lambda x: x.softmax(-1))
    add(f"softmax {_name} to fp32", lambda k=_kind: (zeros(8, 12, 512, 512, kind=k, grad=True),), lambda x: F.softmax(x, dim=-1, dtype=torch.float32))
    add(f"log_softmax {_name}", lambda k=_kind: (zeros(4096, 32000, kind=k, grad=True),), lambda x: x.log_softmax(-1))
    add(f"layer_norm {_name}", lambda k=_kind: (zeros(131072, 768, kind=k, grad=True), zeros(768, kind=k, grad=True)), lambda x, w: F.layer_norm(x, (768,), w))
    add(f"rms_norm {_name}", lambda k=_kind: (zeros(131072, 768, kind=k, grad=True), zeros(768, kind=k, grad=True)), lambda x, w: F.rms_norm(x, (768,), w))
    add(f"group_norm {_name}", lambda k=_kind: (zeros(16, 64, 128, 128, kind=k, grad=True), zeros(64, kind=k, grad=True)), lambda x, w: F.group_norm(x, 8, w))
    add(f"linear {_name}", lambda k=_kind: (zeros(8192, 1024, kind=k, grad=True), zeros(4096, 1024, kind=k, grad=True), zeros(4096, kind=k, grad=True)), F.linear)
    add(f"embedding {_name}", lambda k=_kind: (zeros(32000, 512, kind=k, grad=True),), lambda w: F.embedding(torch.zeros(16, 512, dtype=torch.long, device=DEVICE), w))
    add(f"sum of rows {_name}", lambda k=_kind: (zeros(13440, 3072, kind=k),), lambda x: x.sum(0), False)
    add(f"sort {_name}", lambda k=_kind: (zeros(64, 32000, kind=k),), lambda x: x.sort(-1), False)
    add(f"topk {_name}", lambda k=_kind: (zeros(64, 128000, kind=k),), lambda x: x.topk(50), False)
    add(f"cumsum {_name}", lambda k=_kind: (zeros(64, 128000, kind=k, grad=True),), lambda x: x.cumsum(-1))
    add(f"upsample {_name}", lambda k=_kind: (zeros(8, 64, 64, 64, kind=k, grad=True),), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))
    add(f"mse_loss {_name}", lambda k=_kind: (zeros(4096, 4096, kind=k, grad=True), zeros(4096, 4096, kind=k)), F.mse_loss)
    add(f"bce of logits {_name}", lambda k=_kind: (zeros(4096, 4096, kind=k, grad=True), zeros(4096, 4096, kind=k)), F.binary_cross_entropy_with_logits)
add("batch_norm", lambda: (zeros(64, 64, 112, 112, grad=True), zeros(64, grad=True)), lambda x, w: F.batch_norm(x, None, None, w, None, True))
add("logsumexp", lambda: (zeros(4096, 8192, grad=True),), lambda x: x.logsumexp(-1))
add("multinomial", lambda: (torch.ones(64, 128000, device=DEVICE),), lambda x: x.multinomial(1), False)
add("mean of an expanded gradient", lambda: (zeros(8192, 1024, grad=True), zeros(1024, 1024, grad=True)), lambda x, w: (x @ w).mean())
add("gather", lambda: (zeros(4096, 4096, grad=True),), lambda x: x.gather(1, torch.zeros(4096, 64, dtype=torch.long, device=DEVICE)))
add("index", lambda: (zeros(65536, 256, grad=True),), lambda x: x[torch.zeros(65536, dtype=torch.long, device=DEVICE)])
add("scatter_add", lambda: (zeros(65536, 256),), lambda x: zeros(1000, 256).index_add_(0, torch.zeros(65536, dtype=torch.long, device=DEVICE), x), False)
add("einsum", lambda: (zeros(8, 512, 12, 64, grad=True), zeros(8, 512, 12, 64, grad=True)), lambda a, b: torch.einsum("bnhd,bmhd->bhnm", a, b))
add("rfft", lambda: (zeros(64, 65536, grad=True),), lambda x: torch.fft.rfft(x).abs())
add("cdist", lambda: (zeros(4096, 128, grad=True), zeros(4096, 128, grad=True)), torch.cdist)


# ---- the sweep ----


def recurrent(name, into, width, layers, rows, batch, kind=torch.float32, both=False, dropout=0.0):
    def inputs():
        model = getattr(torch.nn, name)(into, width, layers, bidirectional=both, dropout=dropout, device=DEVICE, dtype=kind)
        return (zeros(rows, batch, into, kind=kind, grad=True), *model.parameters()), model

    def make():
        given, model = inputs()

        def step():
            out = model(given[0])[0]
            torch.autograd.grad(out, given, torch.ones_like(out))

        return step

    return make


KINDS = {"fp32": torch.float32, "bf16": BF, "fp16": HF}


def random_convolution(draw):
    """Returns the arguments of a convolution as networks have them: 4 MiB to 400 MiB of input and output, in float32."""
    while True:
        dims = draw.choices((1, 2, 3), (1, 8, 1))[0]
        kernel, stride = draw.choices(((1, 1), (1, 2), (3, 1), (3, 2), (5, 1), (7, 2), (4, 2), (16, 16), (2, 2)), (3, 1, 8, 3, 1, 1, 1, 1, 1))[0]
        batch = draw.choice((1, 2, 4, 8, 16, 24, 32, 64, 128))
        into = draw.choice((3, 4, 16, 32, 48, 64, 96, 128, 192, 256, 320, 512, 640, 768, 1024))
        out = draw.choice((into, into, 2 * into, max(3, into // 2), 64, 256)) if into > 4 else draw.choice((32, 64, 96, 128))
        size = draw.choice({1: (256, 1000, 1500, 4000), 2: (7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256), 3: (16, 32, 48, 64)}[dims])
        groups = draw.choices((1, into), (12, 1))[0] if into == out and kernel in (3, 5) and stride == 1 else 1
        transposed = kernel in (2, 4) and stride == 2 and into > 4 and draw.random() < 0.5
        pixels = size**dims
        elements = batch * pixels * into + batch * (pixels * stride**dims if transposed else pixels // stride**dims) * out
        weights = into * out // groups * kernel**dims
        if size >= kernel and (1 << 20) <= elements <= (100 << 20) and weights <= (16 << 20):
            return {"batch": batch, "into": into, "out": out, "size": size, "kernel": kernel, "stride": stride, "groups": groups, "dims": dims, "transposed": transposed}


def sweep(count=420):
    """Returns (what, arguments) of `count` operators: convolutions in three types and two orders, and every tenth an RNN."""
    draw, found = random.Random(20), []
    for at in range(count):
        kind = draw.choice(("fp32", "fp32", "bf16", "bf16", "fp16"))
        if at % 10 == 9:
            name = draw.choice(("LSTM", "LSTM", "GRU"))
            width, layers, both = draw.choice((256, 512, 640, 1024)), draw.choice((1, 2, 3)), draw.random() < 0.3
            rows, batch = draw.choice((35, 64, 128, 200)), draw.choice((16, 32, 64, 96))
            found.append((name, {"name": name, "into": draw.choice((width, 256, 300)), "width": width, "layers": layers, "rows": rows, "batch": batch, "kind": kind, "both": both, "dropout": draw.choice((0.0, 0.2)) if layers > 1 else 0.0}))
            continue
        given = random_convolution(draw)
        last = given["dims"] == 2 and draw.random() < 0.25
        found.append(("convolution", {**given, "kind": kind, "last": last}))
    return found


SWEEP = sweep()


def sweep_operator(what, given):
    """Returns the function that makes the step of one entry of SWEEP."""
    given = {**given, "kind": KINDS[given["kind"]]}
    return trained(*convolution(**given)) if what == "convolution" else recurrent(**given)
