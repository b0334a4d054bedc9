"""`stowage estimate`, started by the command: a function of a script, or the folder of a Hugging Face model.

The command has checked the options. Exit codes are the command's: 0 it fits, 1 it does not or the program failed, 2 the input is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, List, Tuple

from ._estimate import Estimate, estimate
from ._gpus import find
from ._library import Invalid, Missing, NotFound, StowageError, Unsupported, shown
from ._model_folder import estimate_folder


def _place(place: str) -> "Tuple[str, str]":
    """Returns the script and the function that "script.py:make" names."""
    path, colon, name = place.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise Invalid(f'"{place}" is neither a folder nor SCRIPT.py:FUNCTION; write it like train.py:make')
    if not os.path.isfile(path):
        raise NotFound(f"{path}: no such file; check the path")
    return path, name


def _function(path: str, name: str) -> Any:
    """Returns the function of that name in a script."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("stowage_estimated_script", path)
    if spec is None or spec.loader is None:
        raise Invalid(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise Invalid(f"{path} has no function {name}")
    return found


def _of_script(options: Any) -> Estimate:
    """Runs what the function of a script returns."""
    find(options.gpu, options.vram)  # typing errors first: PyTorch may be missing, and takes seconds to import
    path, name = _place(options.what)
    try:
        import torch  # noqa: F401
    except ImportError as reason:
        raise Missing(
            f"{sys.executable} cannot import torch ({reason}): install PyTorch for it, or name the Python that has it with --python"
        ) from None
    named: "dict[str, Any]" = {"gpu": options.gpu, "vram": options.vram, "record": options.record}
    if options.steps is not None:
        named["steps"] = options.steps
    return estimate(_function(path, name), **named)


def main(arguments: "List[str]") -> None:
    """Prints the answer and ends the process."""
    parser = argparse.ArgumentParser(prog="stowage estimate", add_help=False)
    for name in ("gpu", "vram", "record", "train", "dtype"):
        parser.add_argument(f"--{name}")
    for name in ("steps", "batch", "length"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("what")
    options = parser.parse_args(arguments)
    try:
        if os.path.isdir(options.what):
            for name in ("steps", "record"):
                if getattr(options, name) is not None:
                    raise Invalid(f"--{name} is for a script, not for a model folder")
            found = estimate_folder(
                options.what, gpu=options.gpu, vram=options.vram, batch=options.batch, length=options.length, train=options.train, dtype=options.dtype
            )
        else:
            for name in ("batch", "length", "train", "dtype"):
                if getattr(options, name) is not None:
                    raise Invalid(f"--{name} is for a model folder; a script sets it itself")
            found = _of_script(options)
    except (StowageError, FileExistsError) as reason:
        said = str(reason).replace('vram="16G"', "--vram 16G").replace("gpu: ", "--gpu: ")
        answer = shown("stowage estimate: " + (said[len("estimate: ") :] if said.startswith("estimate: ") else said))
        print(answer, file=sys.stderr)
        failed = isinstance(reason, Unsupported) and not isinstance(reason, Missing)
        sys.exit(1 if failed else 2)
    except Exception:
        traceback.print_exc()  # the program's own error, as Python shows it
        sys.exit(1)
    data = dict(found.data)
    if options.record is None:
        data["trace"] = None  # it ends with this process
    answer = json.dumps(data, indent=2) if options.json else found.text
    print(answer)
    sys.exit(0 if found.fits else 1)
