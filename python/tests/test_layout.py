"""The ctypes structures have the layout of the public headers."""

import ctypes
import importlib
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import stowage
from support import TREE

#: Structures of the package and the structs of include/stowage that they mirror; `part`: only the beginning.
MIRRORS = [
    ("_analysis", "ExplainOptions", "stow_explain_options", False),
    ("_analysis", "ReplayOptions", "stow_replay_options", False),
    ("_analysis", "ReplayResult", "stow_replay_result", False),
    ("_analysis", "SpillResult", "stow_replay_spill_result", False),
    ("_analysis", "TuneOptions", "stow_tune_options", False),
    ("_analysis", "TuneInfo", "stow_tune_info", False),
    ("_analysis", "TuneSetting", "stow_tune_setting", False),
    ("_files", "InspectOptions", "stow_inspect_options", False),
    ("_files", "ShrinkOptions", "stow_shrink_options", False),
    ("_files", "TableOptions", "stow_table_options", False),
    ("_arrow", "Stream", "struct ArrowArrayStream", False),
    ("_arrow", "PlanOptions", "stow_arrow_plan_options", False),
    ("_arrow", "_Column", "stow_arrow_column", False),
    ("_array", "ArrayOptions", "stow_array_options", False),
    ("_array", "ArrayInfo", "stow_array_info", False),
    ("_heap", "DeviceProps", "stow_device_props", False),
    ("_heap", "_Gate", "stow_heap_gate", False),
    ("_heap", "_Options", "stow_heap_options", False),
    ("_heap", "_Failure", "stow_heap_failure", False),
    ("_heap", "_TierStats", "stow_heap_tier_stats", False),
    ("_heap", "_Stats", "stow_heap_stats", True),
    ("_heap", "_Entry", "stow_heap_entry", False),
    ("_memory", "HostStruct", "stow_watch_host", False),
    ("_memory", "CardStruct", "stow_watch_device", False),
    ("_model", "ModelInfo", "stow_model_info", False),
    ("_model", "ModelTensor", "stow_model_tensor", False),
    ("_model", "ModelPiece", "stow_model_piece", False),
    ("_model", "ModelEntry", "stow_model_entry", False),
    ("_shrink", "_Facts", "stow_values_facts", False),
    ("_trace", "_Options", "stow_trace_options", False),
    ("_trace", "_Record", "stow_trace_record", False),
    ("_trace", "_Frame", "stow_trace_frame", False),
    ("batches", "_Memory", "stow_batches_memory", False),
    ("batches", "_Options", "stow_batches_options", False),
    ("batches", "_State", "stow_batches_state", False),
    ("batches", "_Info", "stow_batches_info", False),
]


def fields(kind):
    """Returns the names of a structure's members, inherited ones first."""
    for base in reversed(kind.__mro__):
        for field in base.__dict__.get("_fields_", ()):
            yield field[0]


class Layout(unittest.TestCase):
    def test_members_are_where_the_headers_have_them(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        stowage.batches  # the function: importing its file first would leave the module in its place
        lines, here = [], {}
        for module, name, struct, part in MIRRORS:
            kind = getattr(importlib.import_module(f"stowage.{module}"), name)
            if not part:
                lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
                here[struct] = ctypes.sizeof(kind)
            for field in fields(kind):
                lines.append(f'printf("{struct}.{field} %zu\\n", offsetof({struct}, {field}));')
                here[f"{struct}.{field}"] = getattr(kind, field).offset
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "layout.c", Path(folder) / "layout"
            source.write_text(
                "#include <stddef.h>\n#include <stdio.h>\n#include <stowage/stowage.h>\nint main(void) {\n"
                + "\n".join(lines) + "\n}\n"
            )
            subprocess.run([compiler, "-I", str(TREE / "include"), "-o", str(program), str(source)], check=True)
            said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
        there = {name: int(value) for name, value in (line.rsplit(None, 1) for line in said.splitlines())}
        self.assertEqual(here, there)

    def test_no_structure_is_forgotten(self):
        known = {(module, name) for module, name, _, _ in MIRRORS}
        for file in sorted((TREE / "python" / "stowage").glob("*.py")):
            for name in re.findall(r"^class (\w+)\((?:Growing|ctypes\.Structure)\)", file.read_text(), re.M):
                if name != "Growing":
                    self.assertIn((file.stem, name), known)


if __name__ == "__main__":
    unittest.main()
