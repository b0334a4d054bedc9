"""Passes the state of PyTorch's optimizers through vram in parts, where it is on the host (trim.c).

Part of the same script as trim.py, which wraps the functions of optimizers with in_parts(). A foreach optimizer applies one operation after
another to all parameters and states; the operations are independent for each tensor. So the lists are cut into parts: the results are the
same bits, and each state crosses the bus once in each direction. A tensor that is larger than a part is cut itself, if the optimizer treats
each element alone: the copies of a whole embedding and its temporaries would push other pages out of vram.

Once some of an optimizer's state is on the host, all of it may be: nothing else is used as rarely. It stays at its own address, where the
program can read it at any time. For its part, a copy of it in vram is used and then copied back. The next part comes in and the last one
leaves while the optimizer works on this one. No page is exchanged.

If everything fits again (`home`, decided in activations.py after each step), the optimizer is called as it is: its kernels use the state
where it is, so the pages come back and stay.
"""

STATE_MIN_BYTES = 1 << 20  # smaller tensors are used where they are
PART_BYTES = 64 << 20  # bytes of parameters in one call of an optimizer
PIECE_ALIGNMENT = 1024  # elements: the kernels read several at once
#: Optimizers that treat each element alone. Adafactor, for example, uses norms of whole tensors.
ELEMENTWISE = {"adam", "adamw", "adamax", "adadelta", "adagrad", "nadam", "radam", "rmsprop", "sgd"}


def parts_of(tensors):
    """Yields ranges of a list of tensors, each of about PART_BYTES."""
    start = total = 0
    for i, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        if total > 0 and total + size > PART_BYTES:
            yield start, i
            start, total = i, 0
        total += size
    yield start, len(tensors)


class Passing:
    """The copies of one call. `lists`: the lists of states. `home` is the program's lane: memory is allocated and freed in its order."""

    def __init__(self, torch, lanes, lists, away):
        self.torch, self.lists, self.any = torch, lists, away
        self.home, self.into, self.out = lanes
        self.leaving = collections.deque()  # (copies, mark after they were copied back)
        self.bytes = 0

    def changed(self, state):
        increment = getattr(getattr(self.torch.autograd, "graph", None), "increment_version", None)
        if increment is not None:
            increment(state)

    def away(self, value):
        """Returns the bytes of a state that may be on the host; 0: it is used where it is."""
        torch = self.torch
        if not isinstance(value, torch.Tensor) or not value.is_cuda or value.layout is not torch.strided:
            return 0
        if not value.is_contiguous() and not (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)):
            return 0
        size = value.numel() * value.element_size()
        if size < STATE_MIN_BYTES:
            return 0
        self.any = self.any or shim_on_host(value.data_ptr(), size) > 0
        return size if self.any else 0

    def fetch(self, start, end):
        """Starts copying the states of a part in. Returns the copies as {(list, index): tensor}, and the mark after them. If there is no
        memory for them, they are used where they are."""
        copies = {}
        try:
            for number, values in enumerate(self.lists):
                for i in range(start, end):
                    size = self.away(values[i])
                    self.bytes += size
                    if size > 0:
                        copies[number, i] = self.torch.empty_like(values[i])
        except RuntimeError as error:
            shim_log(f"states: no memory for copies: {error!r}")
            copies = {}
        if not copies:
            return copies, None
        self.into.wait(self.home.mark())  # the memory may still be in use there
        for (number, i), copy in copies.items():
            self.into.copy(copy, self.lists[number][i])
        return copies, self.into.mark()

    def send(self, copies):
        """Starts copying the states of a part back."""
        if not copies:
            return
        self.out.wait(self.home.mark())
        for (number, i), copy in copies.items():
            self.out.copy(self.lists[number][i], copy)
            self.changed(self.lists[number][i])
        self.leaving.append((copies, self.out.mark()))

    def retire(self, kept):
        """Frees the copies of all but the last `kept` parts."""
        while len(self.leaving) > kept:
            self.home.wait(self.leaving.popleft()[1])


class States:
    """The lanes, and how much state of each optimizer is on the host."""

    def __init__(self, torch, make=Passing):
        self.torch, self.make, self.streams, self.away = torch, make, {}, {}
        self.parameter_bytes = {}  # of each optimizer: foreach functions allocate as much for a moment
        self.home = False  # all state has space in vram
        self.compiling = compiling_of(torch)

    def away_bytes(self):
        return sum(self.away.values())

    def moment_bytes(self):
        """Returns what optimizers allocate while they work."""
        return sum(self.parameter_bytes.values())

    def usable(self, params):
        cuda = self.torch.cuda
        return (params[0].is_cuda and all(p.device == params[0].device for p in params) and
                params[0].device.index == cuda.current_device() and not cuda.is_current_stream_capturing())

    def passing(self, params, first, lists):
        """Returns the copies for a call, or None if it cannot have any. `first` identifies the optimizer's parameters."""
        if not self.usable(params):
            return None
        device = params[0].device
        return self.make(self.torch, self.lanes(device), lists, self.away.get(first, 0) > 0)

    def lanes(self, device):
        """Returns the lanes of the program, of copies in and of copies out."""
        if device not in self.streams:
            events = []
            stream = self.torch.cuda.Stream
            self.streams[device] = events, *(Lane(stream(device), events, stream(device)) for _ in range(2))
        events, into, out = self.streams[device]
        return Lane(self.torch.cuda.current_stream(device), events), into, out

    def pieces(self, row):
        """Yields a parameter, its gradient and its state in pieces of about PART_BYTES, or as they are if they cannot be cut."""
        torch, param = self.torch, row[0]
        count = int(param.numel() * param.element_size() / PART_BYTES + .5)

        def cuttable(value):
            return (type(value) in (torch.Tensor, torch.nn.Parameter) and
                    (value.numel() == 1 or
                     (value.numel() == param.numel() and value.layout is torch.strided and value.is_contiguous() and not value.is_complex())))

        if count < 2 or not all(cuttable(value) for value in row):
            yield row
            return
        size = -(-param.numel() // (count * PIECE_ALIGNMENT)) * PIECE_ALIGNMENT
        for start in range(0, param.numel(), size):
            end = min(start + size, param.numel())
            # The number of steps is counted in each call, so all but the last count in a copy.
            yield [value.detach().view(-1)[start:end] if value.numel() > 1 else
                   value if end == param.numel() else value.clone() for value in row]

    def cut(self, params, lists):
        """Returns the parameters and the lists with large tensors in pieces, and the index of each parameter that is not cut."""
        rows, whole = [], {}
        for i, param in enumerate(params):
            made = list(self.pieces([param] + [values[i] for values in lists]))
            if len(made) == 1:
                whole[len(rows)] = i
            rows += made
        columns = [list(column) for column in zip(*rows)]
        return columns[0], columns[1:], whole

    def in_parts(self, function):
        elementwise = function.__name__.rpartition("_")[2] in ELEMENTWISE

        @functools.wraps(function)
        def wrapped(params, *args, **kwargs):
            if self.compiling() or not shim_resident() or len(params) == 0:
                return function(params, *args, **kwargs)
            if self.home:
                self.away.pop(id(params[0]), None)
                return function(params, *args, **kwargs)
            self.run(function, params, args, kwargs, elementwise)

        return wrapped

    def run(self, function, params, args, kwargs, elementwise):
        count, first = len(params), id(params[0])
        self.parameter_bytes[first] = sum(p.numel() * p.element_size() for p in params)
        args, kwargs = list(args), dict(kwargs)
        # Every list with an item per parameter, by where it is passed. The first one has the gradients.
        places = [(args, i) for i in range(len(args))] + [(kwargs, name) for name in kwargs]
        places = [(where, at) for where, at in places if isinstance(where[at], list) and len(where[at]) == count]
        given = lists = [where[at] for where, at in places]
        whole = {i: i for i in range(count)}
        if elementwise:
            params, lists, whole = self.cut(params, lists)
        passing = self.passing(params, first, lists[1:])
        ranges = list(parts_of(params))
        coming = passing.fetch(*ranges[0]) if passing is not None else ({}, None)
        try:
            for turn, (start, end) in enumerate(ranges):
                copies, came = coming
                if passing is not None and turn + 1 < len(ranges):
                    coming = passing.fetch(*ranges[turn + 1])
                if came is not None:
                    passing.home.wait(came)
                cuts = [values[start:end] for values in lists]
                for (number, i), copy in copies.items():
                    cuts[number + 1][i - start] = copy
                for (where, at), cut in zip(places, cuts):
                    where[at] = cut
                try:
                    function(params[start:end], *args, **kwargs)
                finally:
                    if passing is not None:
                        passing.send(copies)
                # What the function put into its lists: a first momentum, for example.
                for number, (values, cut) in enumerate(zip(given, cuts)):
                    for i, value in enumerate(cut, start):
                        if i in whole and (number - 1, i) not in copies:
                            values[whole[i]] = value
                if passing is not None:
                    passing.retire(1)
        finally:
            if passing is not None:
                passing.retire(0)
                self.away[first] = passing.bytes


def arm_optimizers(states):
    kinds = "_multi_tensor_", "_fused_", "_single_tensor_"
    for module in [m for name, m in sys.modules.items() if name.startswith("torch.optim.") and m is not None]:
        for name in [n for n in vars(module) if n.startswith(kinds)]:
            function = getattr(module, name)
            if callable(function) and getattr(function, "__module__", None) == module.__name__:
                setattr(module, name, states.in_parts(function))
