"""generate() of Hugging Face transformers on fake tensors: it runs to its maximum length.

generate() stops when a tensor shows that every sequence has ended. Fake tensors have no values, so this never happens. The length
does not depend on values: inside this context it alone ends the loop.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Dict, Iterator


@contextlib.contextmanager
def generate_to_the_end(notes: "Dict[str, str]") -> "Iterator[None]":
    """Lets generate() end by length inside the `with`. Does nothing if transformers is not loaded."""
    mixin = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    criteria = getattr(sys.modules.get("transformers.generation.stopping_criteria"), "MaxLengthCriteria", None)
    if mixin is None or criteria is None or not hasattr(mixin, "_has_unfinished_sequences"):
        yield
        return
    unfinished, reached = mixin._has_unfinished_sequences, criteria.__call__
    state = {"done": False}

    def check(self: Any, ids: Any, *rest: Any, **named: Any) -> Any:
        state["done"] = state["done"] or ids.shape[1] >= self.max_length
        return reached(self, ids, *rest, **named)

    def goes_on(self: Any, *_: Any, **__: Any) -> bool:
        notes["generation"] = "generate() was run to its maximum length; sequences that end earlier need less"
        done, state["done"] = state["done"], False
        return not done

    mixin._has_unfinished_sequences, criteria.__call__ = goes_on, check
    try:
        yield
    finally:
        mixin._has_unfinished_sequences, criteria.__call__ = unfinished, reached
