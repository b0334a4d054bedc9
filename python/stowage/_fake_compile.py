"""torch.compile in an estimate: what a compiled function allocates, without compiling it.

The function is traced to a graph of its forward and its backward pass, and Inductor's own partitioner chooses what the backward pass
computes again. The graphs then run on fake tensors. Inductor writes pointwise operators into the kernels that use them, so their results
take memory only where something else reads them: a matrix product or another library's kernel, the backward pass, the caller. Which kernels
are made of the rest is not known, nor the tuning of them, so the answer stays approximate. A function that cannot be traced as a whole
runs as it is.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

from ._fake_record import HIDDEN, hiding_dispatch
from ._kernels import _without_autocast

_APPROXIMATE = "torch.compile: its graphs were followed; which results its kernels keep in memory is approximate"
_IGNORED = "torch.compile was ignored for a function that cannot be traced as a whole: a compiled program usually needs less than this"
#: A result that several kernels use is written to memory when computing it again would read more than this (config.realize_reads_threshold
#: of Inductor).
_READS_MOST = 4
#: Operators that Inductor writes into kernels, besides those that PyTorch tags as pointwise.
_FUSED = frozenset(
    "_to_copy convert_element_type embedding index gather full full_like iota arange scalar_tensor zeros zeros_like ones ones_like empty empty_like"
    " clone where constant_pad_nd slice_scatter select_scatter copy fill repeat flip masked_fill _unsafe_index rand randn inductor_random inductor_seeds"
    " inductor_lookup_seed device_put lift_fresh_copy tril triu".split()
)
#: Operators that read many numbers for each result. Their results are always in memory; what they read need not be.
_REDUCTIONS = frozenset("sum mean amax amin max min var var_mean std argmax argmin any all prod logsumexp cumsum".split())
#: Operators that write into the memory of their first argument if nothing reads it later (reinplace.py of Inductor).
_INTO = frozenset("index_put _unsafe_index_put scatter scatter_add scatter_reduce index_add".split())
_VIEWS = frozenset(
    "view _unsafe_view reshape _reshape_alias permute transpose t expand slice select unsqueeze squeeze alias as_strided unbind split"
    " split_with_sizes unfold diagonal detach".split()
)


def _name(node: Any) -> str:
    target = node.target
    return str(getattr(target, "_schema", None) and target._schema.name.rpartition("::")[2] or getattr(target, "__name__", target))


def _is_fused(torch: Any, node: Any) -> bool:
    if node.op != "call_function":
        return False
    name = _name(node)
    if name == "scatter" and _name(node.args[0]) == "full" and not isinstance(node.args[3], type(node)):
        return True  # one value per row of a constant: a comparison (scatter_upon_const_tensor of post_grad.py)
    return name in _FUSED or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _is_view(node: Any) -> bool:
    return bool(node.op == "call_function" and (_name(node) in _VIEWS or node.target is operator.getitem))


def kept(torch: Any, graph: Any) -> "Set[Any]":
    """Returns the nodes whose results take memory. Those of views are the memory of what they show."""

    def readers(node: Any) -> "Iterator[Any]":
        for user in node.users:
            if _is_view(user) and user.target is not operator.getitem:
                yield from readers(user)
            else:
                yield user

    found: "Set[Any]" = set()
    reads: "Dict[Any, Set[Any]]" = {}  # node that is in no memory: the nodes in memory from which it is computed
    for node in graph.nodes:
        below: "Set[Any]" = set()
        for one in node.all_input_nodes:
            below |= reads.get(one, {one})
        if _is_view(node):
            source = node.all_input_nodes[0] if node.all_input_nodes else None
            if source in reads:
                reads[node] = reads[source]
            elif source is not None:
                reads[node] = {source}
            continue
        if not _is_fused(torch, node):
            found.add(node)
            continue
        users = list(readers(node))
        if any(not _is_fused(torch, user) and _name(user) not in _REDUCTIONS for user in users) or (len(users) > 1 and len(below) > _READS_MOST):
            found.add(node)
        else:
            reads[node] = below
    return found


def _runner(recorder: Any, module: Any, foreign: "Set[int]") -> "Callable[[List[Any]], Any]":
    """Returns a function that runs a graph: results outside of `kept` are not recorded, and each is freed after its last use.

    A kernel writes its result over an operand that nothing reads later, if both have the same size (config.inplace_buffers of Inductor);
    `foreign` are the storages that the caller holds.
    """
    torch = recorder.torch
    in_memory = kept(torch, module.graph)
    nodes = list(module.graph.nodes)
    inside = {node: _is_fused(torch, node) or _is_view(node) or _name(node) in _REDUCTIONS or _name(node) in _INTO for node in nodes}
    # A kernel that computes what is in no memory reads what that was computed from: it stays until then.
    last: "Dict[Any, Any]" = {}
    sources: "Dict[Any, Set[Any]]" = {}
    for node in nodes:
        through: "Set[Any]" = set()
        for one in node.all_input_nodes:
            last[one] = node
            through |= sources.get(one, set()) | {one}
        if node in in_memory:
            for one in through:
                last[one] = node
        else:
            sources[node] = through
    ends: "Dict[Any, List[Any]]" = {}
    for one, node in last.items():
        ends.setdefault(node, []).append(one)

    def overwritten(node: Any, made: Any, values: "Dict[Any, Any]") -> Any:
        """Returns the value whose memory the result of a kernel takes, or None."""
        size = made.untyped_storage().nbytes()
        for one in ends.get(node, ()):
            value = values.get(one)
            if isinstance(value, torch.Tensor) and (one in in_memory or one.op == "placeholder"):
                storage = value.untyped_storage()
                if storage.nbytes() == size and storage._cdata not in foreign:
                    return value
        return None

    def run(given: "List[Any]") -> Any:
        with recorder.recording(), _without_autocast(torch):
            return through_nodes(given)

    def through_nodes(given: "List[Any]") -> Any:
        values: "Dict[Any, Any]" = {}
        inputs = iter(given)
        for node in nodes:
            if node.op == "placeholder":
                values[node] = next(inputs)
        del inputs
        given.clear()
        for node in nodes:
            if node.op == "output":
                return torch.fx.node.map_arg(node.args[0], lambda one: values[one])
            if node.op == "get_attr":
                values[node] = getattr(module, node.target)
            elif node.op == "call_function":
                args, named = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: values[one])
                with recorder.pausing() if inside[node] else contextlib.nullcontext():
                    values[node] = made = node.target(*args, **named)
                if inside[node] and node in in_memory:
                    where = recorder._where()
                    old = overwritten(node, made, values) if isinstance(made, torch.Tensor) else None
                    if old is not None:
                        recorder.gives_up(old, where)
                    for one in made if isinstance(made, (list, tuple)) else (made,):
                        if isinstance(one, torch.Tensor):
                            recorder.saw(one, where)
                    del old
                del args, named, made
            for one in ends.get(node, ()):
                values.pop(one, None)
        return None

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _modules(torch: Any, function: Any) -> "List[Any]":
    """Returns the modules that a function uses: its own, those of its closure and those that it names."""
    if isinstance(function, torch.nn.Module):
        return [function]
    found = [getattr(function, "__self__", None)]
    plain = getattr(function, "__func__", function)
    for cell in getattr(plain, "__closure__", None) or ():
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    names = getattr(getattr(plain, "__code__", None), "co_names", ())
    found += [plain.__globals__[one] for one in names if one in plain.__globals__] if hasattr(plain, "__globals__") else []
    return [one for one in found if isinstance(one, torch.nn.Module)]


def _traced(recorder: Any, function: Any, modules: "List[Any]") -> Any:
    """Returns the function as two graphs behind one autograd function; its first argument is the list of parameters and buffers."""
    torch = recorder.torch
    import functools

    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    foreign: "Set[int]" = set()
    places: "List[Tuple[Dict[str, Any], str, int]]" = []
    tensors: "List[Any]" = []
    numbers: "Dict[int, int]" = {}
    for module in modules:
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, one in held.items():
                    if one is not None:
                        if id(one) not in numbers:
                            numbers[id(one)] = len(tensors)
                            tensors.append(one)
                        places.append((held, name, numbers[id(one)]))

    def called(given: "List[Any]", args: Any, named: Any) -> Any:
        was = [held[name] for held, name, _ in places]
        try:
            for held, name, at in places:
                held[name] = given[at]
            return function(*args, **named)
        finally:
            for (held, name, _), one in zip(places, was):
                held[name] = one

    def compiler(module: Any, _: Any) -> Any:
        return _runner(recorder, module, foreign)

    made = aot_function(
        called,
        fw_compiler=compiler,
        bw_compiler=compiler,
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        decompositions=select_decomp_table(),
    )

    def call(*args: Any, **named: Any) -> Any:
        given = [one for one in torch.utils._pytree.tree_leaves((args, named)) if isinstance(one, torch.Tensor)]
        foreign.update(one.untyped_storage()._cdata for one in (*tensors, *given))
        return made(tensors, args, named)

    return call


@contextlib.contextmanager
def _hiding(torch: Any) -> "Iterator[None]":
    """Inside the `with`, C++ asks for the device also of the tensors that a trace wraps, and the recorder's mode answers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensor

    make, gpu, fake = torch.Tensor._make_wrapper_subclass, torch.device("cuda:0"), FakeTensorMode.dispatch

    def wrapped(cls: Any, *args: Any, **named: Any) -> Any:
        if cls is FunctionalTensor and args[6] in (gpu, torch.device(HIDDEN)):
            args = (*args[:6], gpu, *args[7:10], True, *args[11:])  # True: dispatch_device
        return make(cls, *args, **named)

    torch.Tensor._make_wrapper_subclass = staticmethod(wrapped)
    def device(self: Any) -> Any:
        inner = torch._from_functional_tensor(self.elem)
        return getattr(inner, "fake_device", None) or inner.device

    FunctionalTensor.device = property(device)
    FakeTensorMode.dispatch = hiding_dispatch(torch, fake, FunctionalTensor)  # PyTorch 2.15 asks inside the operators of a trace
    try:
        yield
    finally:
        FakeTensorMode.dispatch = fake
        torch.Tensor._make_wrapper_subclass = make
        del FunctionalTensor.device


def _key(torch: Any, args: Any, named: Any, modules: "List[Any]") -> Any:
    """Returns what a trace is valid for: shapes and types, plain values, and the modes of PyTorch and of the modules."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, named))
    seen = tuple((one.shape, one.dtype, one.requires_grad) if isinstance(one, torch.Tensor) else repr(one) for one in leaves)
    cast = (torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype())
    return seen, str(spec), torch.is_grad_enabled(), cast, tuple(part.training for one in modules for part in one.modules())


def compiled(recorder: Any, function: Any, notes: "Dict[str, str]") -> "Callable[..., Any]":
    """Returns a function that allocates what `function` would if it was compiled."""
    torch = recorder.torch
    traces: "Dict[Any, Any]" = {}

    def call(*args: Any, **named: Any) -> Any:
        modules = _modules(torch, function)
        key = _key(torch, args, named, modules)
        if key not in traces:
            try:
                traces[key] = _traced(recorder, function, modules)
                with recorder.pausing(), _hiding(torch):
                    return traces[key](*args, **named)
            except Exception:
                traces[key] = None
                recorder.compiled, notes["compile"] = "ignored", _IGNORED
        made = traces[key]
        if made is None:
            return function(*args, **named)
        with recorder.pausing():
            return made(*args, **named)

    if not recorder.compiled:
        recorder.compiled, notes["compile"] = "followed", _APPROXIMATE
    return call


def replaced_by_graphs(recorder: Any, notes: "Dict[str, str]") -> "List[Tuple[Any, str, Any]]":
    """Returns the functions that compile: (object, name, replacement)."""
    torch = recorder.torch

    def compile_module(self: Any, *_: Any, **__: Any) -> None:
        self._compiled_call_impl = compiled(recorder, self._call_impl, notes)

    def compile(model: Any = None, **_: Any) -> Any:
        if model is None:
            return compile
        if not isinstance(model, torch.nn.Module):
            return compiled(recorder, model, notes)
        made = copy.copy(model)  # the model itself stays as it is; both have the same parameters
        compile_module(made)
        return made

    places = ((torch, "compile", compile), (torch.nn.Module, "compile", compile_module))
    return [one for one in places if hasattr(one[0], one[1])]
