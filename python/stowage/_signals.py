"""Handlers of signals during a call of the library.

Python runs a handler when it next enters Python code. During a call of the library that is a callback, and ctypes prints and drops what
a callback raises: since Python 3.11 a KeyboardInterrupt comes before the callback's first `try`. So handlers wait (`held`), and the
callback runs them where it catches their exceptions.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple


@contextlib.contextmanager
def held() -> "Iterator[Callable[[], None]]":
    """Makes handlers of signals wait. Yields a function that runs those that are due; the end of the block runs the rest.

    Only the main thread runs handlers. In any other thread this does nothing.

    >>> reached = []
    >>> with contextlib.suppress(KeyboardInterrupt), held() as run:
    ...     signal.raise_signal(signal.SIGINT)
    ...     reached.append("after the signal")
    ...     run()
    ...     reached.append("after its handler")
    >>> reached
    ['after the signal']
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers: "Dict[int, Any]" = {}
    due: "List[Tuple[int, Any]]" = []

    def wait(number: int, frame: Any) -> None:
        due.append((number, frame))

    def run() -> None:
        while due:
            number, frame = due.pop(0)
            handlers[number](number, frame)

    try:
        for number in sorted(signal.valid_signals()):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, wait)
        yield run
    finally:
        for held_number in reversed(list(handlers)):  # SIGINT, whose handler may raise here, is restored last
            signal.signal(held_number, handlers[held_number])
        run()
