"""Passes weights of linear layers that are on the host through vram, in PyTorch (trim.c).

Part of the same script as trim.py, which calls arm_weights() once. A weight on the host stays there, at its own address. When a linear layer
needs it, a copy of it in vram is used. The copies of the layers that came next the last time are made ahead, beside the kernels. No page is
exchanged, and each weight crosses the bus once for each use.

Only weights that get no gradient here: inference, or frozen layers. For the backward pass of a frozen layer the copy is made again
(activations.py). A copy that was made ahead is used only if nothing may have written to the weight since; the shim knows from the launches.
"""
import weakref

WEIGHT_MIN_BYTES = 4 << 20  # a smaller weight is used where it is
AHEAD = 2  # weights that are copied ahead: one crosses the bus and one waits; more would need more vram
AHEAD_PART = 12  # of the limit that copies ahead may use


class Copy:
    """A copy of a weight: on its way, or there after `came`."""
    __slots__ = "tensor", "came", "written", "version"

    def __init__(self, tensor, came, written, version):
        self.tensor, self.came, self.written, self.version = tensor, came, written, version


class Weights:
    """The copies. `home` is the lane of the program: memory is allocated and freed in its order."""

    def __init__(self, torch, linear):
        self.torch, self.linear = torch, linear
        self.lane, self.home, self.lock = None, None, threading.RLock()
        self.current, self.device = current_of(torch), getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        self.ready = {}  # address of a weight -> its copy made ahead
        self.after = {}  # (weight before, weight) -> (address, weak reference) of the next one
        self.last = None, None  # the last two weights
        self.copies = {}  # storage of a copy -> weak reference to its weight
        self.saved = None  # set by the hooks for saved tensors: whether they are on
        self.compiling = compiling_of(torch)
        self.modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
        self.transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
        self.most_bytes = None  # of copies ahead; looked up once

    # ---- which ----

    def wanted(self, value, weight):
        torch = self.torch
        if type(weight) not in (torch.Tensor, torch.nn.Parameter) or not weight.is_cuda or type(value) is not torch.Tensor:
            return False
        size = weight.numel() * weight.element_size()
        if size < WEIGHT_MIN_BYTES or not weight.is_contiguous() or self.modes() > 0:
            return False
        if self.transforms() is not None or shim_capturing():
            return False
        if torch.is_grad_enabled() and (weight.requires_grad or value.requires_grad):
            if weight.requires_grad or self.saved is None or not self.saved():
                return False
        return self.at_home(weight) and shim_on_host(weight.data_ptr(), size) > 0

    def at_home(self, weight):
        """Returns whether this is the stream that the copies follow."""
        index = self.device()
        if weight.get_device() != index:
            return False
        if self.home is None:
            self.begin()
        return self.current(index) == self.home.handle

    def begin(self):
        with self.lock:
            if self.home is None:
                cuda, events = self.torch.cuda, []
                self.lane, self.home = Lane(cuda.Stream(), events, cuda.Stream()), Lane(cuda.current_stream(), events)

    # ---- copies ----

    def start(self, weight, written):
        with self.torch.no_grad():
            source = weight.detach()
            tensor = self.torch.empty_like(source)
        self.lane.wait(self.home.mark())  # the memory may still be in use there
        shim_passed(source.data_ptr(), source.numel() * source.element_size())
        self.lane.copy(tensor, source)
        return Copy(tensor, self.lane.mark(), written, weight._version)

    def written(self, weight):
        return shim_written(weight.data_ptr(), weight.numel() * weight.element_size())

    def fetched(self, weight):
        """Returns a copy of the weight in vram, in the order of the home stream."""
        with self.lock:
            return self.take(weight)

    def take(self, weight):
        address = weight.data_ptr()
        copy = self.ready.pop(address, None)
        if copy is not None and (copy.written != self.written(weight) or copy.version != weight._version or
                                 copy.tensor.shape != weight.shape or copy.tensor.dtype != weight.dtype):
            self.home.wait(copy.came)  # before its memory is freed
            copy = None
        if copy is None:
            copy = self.start(weight, 0)
        self.home.wait(copy.came)
        self.note(address, weight)
        storage = storage_of(copy.tensor)._cdata
        if len(self.copies) > 4096:
            self.copies.clear()
        self.copies[storage] = weakref.ref(copy.tensor), weakref.ref(weight)
        self.look_ahead()
        return copy.tensor

    def note(self, address, weight):
        before, last = self.last
        if last is not None:
            if len(self.after) > 65536:
                self.after.clear()
            self.after[before, last] = address, weakref.ref(weight)
        self.last = last, address

    def look_ahead(self):
        """Starts the copies of the next weights, and drops those that are no longer next."""
        at, wanted, size = self.last, {}, 0
        if self.most_bytes is None:
            self.most_bytes = shim_room()[0] // AHEAD_PART
        for _ in range(AHEAD):
            address, reference = self.after.get(at, (None, None))
            weight = reference() if reference is not None else None
            if weight is None or weight.data_ptr() != address:
                break
            size += weight.numel() * weight.element_size()
            if size > self.most_bytes:
                break
            wanted[address] = weight
            at = at[1], address
        for address in [a for a in self.ready if a not in wanted]:
            self.home.wait(self.ready.pop(address).came)
        for address, weight in wanted.items():
            if address in self.ready or shim_on_host(address, weight.numel() * weight.element_size()) == 0:
                continue
            written = self.written(weight)
            if written == 0:  # not known, or not over yet
                break
            self.ready[address] = self.start(weight, written)

    def weight_of(self, storage):
        """Returns the weight whose copy has this storage, or None."""
        copy, weight = self.copies.get(storage._cdata, (None, None))
        tensor = copy() if copy is not None else None
        return weight() if tensor is not None and storage_of(tensor)._cdata == storage._cdata else None

    # ---- the function ----

    def near(self, value, weight):
        """Returns the weight, or a copy of it in vram."""
        try:
            return self.fetched(weight) if self.wanted(value, weight) else weight
        except Exception as error:
            shim_log(f"weights: {error!r}")
            return weight

    def wrapped(self):
        linear, compiling = self.linear, self.compiling

        @functools.wraps(linear)
        def wrapped(input, weight, bias=None):
            # torch.compile takes this for a constant and sees only the function itself.
            if not compiling() and shim_resident():
                weight = self.near(input, weight)
            return linear(input, weight, bias)

        return wrapped


def arm_weights(torch, make=Weights):
    functional = importlib.import_module("torch.nn.functional")
    weights = make(torch, functional.linear)
    wrapped = weights.wrapped()
    builtins = importlib.import_module("torch.jit._builtins")
    builtins._register_builtin(wrapped, "aten::linear")  # torch.jit.script finds functions by identity
    functional.linear = wrapped
    return weights
