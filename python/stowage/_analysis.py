"""libstowage-analysis: recordings opened, explained, replayed and reported (stowage/explain.h, replay.h, report.h).

Errors arrive as status codes and become the exceptions of `_library`. No process is started.
"""

from __future__ import annotations

import contextlib
import json
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Iterator, List, Optional

from ._library import Growing, call, declare, lib

_RECORD_BYTES = 40  # sizeof(stow_trace_record)

UNKNOWN = (1 << 64) - 1  #: STOW_BYTES_UNKNOWN, STOW_REPLAY_NO_EVENT


class ExplainOptions(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("message", c_char_p),
        ("message_bytes", c_uint64),
        ("device_name", c_char_p),
        ("device_bytes", c_uint64),
    ]


class ReplayOptions(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("device_bytes", c_uint64),
        ("limit_bytes", c_uint64),
        ("settings", c_char_p),
    ]


class ReplayResult(Growing):
    _fields_ = [
        ("finishes", c_uint32),
        ("policy", c_char_p),
        ("failed_at_event", c_uint64),
        ("failed_bytes", c_uint64),
        ("peak_live_bytes", c_uint64),
        ("peak_reserved_bytes", c_uint64),
        ("largest_hole_bytes", c_uint64),
        ("page_calls", c_uint64),
        ("page_time_us", c_uint64),
        ("retries", c_uint64),
        ("min_limit_bytes", c_uint64),
        ("min_limit_proved", c_uint32),
        ("checked", c_uint32),
        ("segment_mismatches", c_uint64),
        ("segments_checked", c_uint64),
        ("address_mismatches", c_uint64),
        ("addresses_checked", c_uint64),
        ("lower_bound_bytes", c_uint64),
    ]


class SpillResult(Growing):
    _fields_ = [
        ("fits", c_uint32),
        ("capacity_bytes", c_uint64),
        ("peak_live_bytes", c_uint64),
        ("excess_bytes", c_uint64),
        ("bare_ns", c_uint64),
        ("step_ns", c_uint64),
        ("floor_ns", c_uint64),
        ("in_bytes", c_uint64),
        ("out_bytes", c_uint64),
    ]


class TuneOptions(Growing):
    _fields_ = [
        ("reserved", c_uint32),
        ("device_bytes", c_uint64),
        ("limit_bytes", c_uint64),
        ("progress", c_void_p),
        ("progress_user", c_void_p),
    ]


class TuneInfo(Growing):
    _fields_ = [
        ("setting_count", c_uint32),
        ("best", c_uint32),
        ("fits", c_uint32),
        ("batch", c_uint64),
        ("batch_part", c_uint32),
        ("batch_whole", c_uint32),
        ("batch_setting", c_uint32),
        ("batch_until_failure", c_uint32),
        ("batch_reserved_bytes", c_uint64),
    ]


class TuneSetting(Growing):
    _fields_ = [
        ("recorded_with", c_uint32),
        ("settings", c_char_p),
        ("min_limit_bytes", c_uint64),
        ("min_limit_saved_bytes", c_int64),
        ("peak_reserved_bytes", c_uint64),
        ("peak_reserved_saved_bytes", c_int64),
        ("page_time_us", c_uint64),
        ("finishes", c_uint32),
        ("min_limit_proved", c_uint32),
    ]


declare(
    {
        "stow_tune_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(TuneOptions)]),
        "stow_tune_close": (None, [c_void_p]),
        "stow_tune_get_info": (c_int, [c_void_p, POINTER(TuneInfo)]),
        "stow_tune_get_setting": (c_int, [c_void_p, c_uint32, POINTER(TuneSetting)]),
        "stow_recording_open": (c_int, [POINTER(c_void_p), c_char_p, c_void_p]),
        "stow_recording_make": (c_int, [POINTER(c_void_p), c_char_p, c_uint64]),
        "stow_recording_close": (None, [c_void_p]),
        "stow_recording_save": (c_int, [c_void_p, c_char_p]),
        "stow_explain_recording": (c_int, [POINTER(c_void_p), c_void_p, POINTER(ExplainOptions)]),
        "stow_explain_message": (c_int, [POINTER(c_void_p), c_char_p, c_uint64]),
        "stow_explain_run": (c_int, [POINTER(c_void_p), c_char_p]),
        "stow_explanation_close": (None, [c_void_p]),
        "stow_explanation_text": (c_char_p, [c_void_p]),
        "stow_explanation_json": (c_char_p, [c_void_p]),
        "stow_replay_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(ReplayOptions)]),
        "stow_replay_close": (None, [c_void_p]),
        "stow_replay_policy": (c_char_p, [c_uint32]),
        "stow_replay_spill": (c_int, [c_void_p, c_uint64, POINTER(SpillResult)]),
        "stow_replay_run": (c_int, [c_void_p, c_char_p, c_uint32, POINTER(ReplayResult)]),
        "stow_report_open": (c_int, [POINTER(c_void_p), c_void_p, c_void_p]),
        "stow_report_close": (None, [c_void_p]),
        "stow_report_text": (c_int, [c_void_p, POINTER(c_char_p)]),
        "stow_report_json": (c_int, [c_void_p, POINTER(c_char_p)]),
        "stow_report_html": (c_int, [c_void_p, POINTER(c_char_p)]),
        "stow_report_save": (c_int, [c_void_p, c_char_p]),
    }
)


@contextlib.contextmanager
def opened(path: str) -> "Iterator[c_void_p]":
    """Opens a recording for the duration of the `with`."""
    recording = c_void_p()
    call("stow_recording_open", byref(recording), os.fsencode(path), None)
    try:
        yield recording
    finally:
        lib().stow_recording_close(recording)


def convert(path: str, to: str) -> None:
    """Writes a recording in the format the ending of `to` names."""
    with opened(path) as recording:
        call("stow_recording_save", recording, os.fsencode(to))


# ---- explaining ----


class Answer:
    """The library's explanation of a failure: its text and its parsed JSON."""

    def __init__(self, made: c_void_p) -> None:
        try:
            self.text = lib().stow_explanation_text(made).decode("utf-8", "replace").rstrip()
            self.data: "Dict[str, Any]" = json.loads(lib().stow_explanation_json(made).decode("utf-8", "replace"))
        finally:
            lib().stow_explanation_close(made)


def explain_recording(path: str, message: "Optional[str]" = None, device_bytes: int = 0) -> Answer:
    """Explains why a recorded program ran out of memory. `message` is its error text, if the recording lacks it. `device_bytes`: explain as
    on a device of that size, by replay."""
    options = ExplainOptions(device_bytes=device_bytes)
    if message is not None:
        text = message.encode("utf-8", "replace")
        options.message, options.message_bytes = text, len(text)
    made = c_void_p()
    with opened(path) as recording:
        call("stow_explain_recording", byref(made), recording, byref(options))
    return Answer(made)


def explain_message(message: str) -> Answer:
    """Explains an error text alone."""
    made = c_void_p()
    text = message.encode("utf-8", "replace")
    call("stow_explain_message", byref(made), text, len(text))
    return Answer(made)


def explain_run(folder: "Optional[str]" = None) -> Answer:
    """Explains a run of `stowage run` from its folder, or the last run."""
    made = c_void_p()
    call("stow_explain_run", byref(made), os.fsencode(folder) if folder is not None else None)
    return Answer(made)


# ---- replaying ----


def policies() -> "List[str]":
    """Returns the allocators that a recording can be replayed with."""
    found: "List[str]" = []
    while True:
        name = lib().stow_replay_policy(len(found))
        if name is None:
            return found
        found.append(name.decode())


def replay(path: str, names: "List[str]", flags: int, options: ReplayOptions) -> "List[Dict[str, Any]]":
    """Returns the results of the policies `names`, in the form of `stowage replay --json`."""
    with opened(path) as recording:
        return _replayed(recording, names, flags, options)


def replay_events(events: bytes, name: str, flags: int, options: ReplayOptions) -> "Dict[str, Any]":
    """Returns the result of one policy for events in memory: an array of stow_trace_record."""
    recording = c_void_p()
    call("stow_recording_make", byref(recording), events, len(events) // _RECORD_BYTES)
    try:
        return _replayed(recording, [name], flags, options)[0]
    finally:
        lib().stow_recording_close(recording)


def _replayed(recording: c_void_p, names: "List[str]", flags: int, options: ReplayOptions) -> "List[Dict[str, Any]]":
    made, results = c_void_p(), []
    call("stow_replay_open", byref(made), recording, byref(options))
    try:
        for name in names:
            result = ReplayResult()
            call("stow_replay_run", made, name.encode("utf-8", "replace"), flags, byref(result))
            results.append(_as_json(result))
    finally:
        lib().stow_replay_close(made)
    return results


def spill(path: str, device_bytes: int) -> SpillResult:
    """Simulates one step of a recorded program on a device of that size that spills to host memory."""
    result = SpillResult()
    with opened(path) as recording:
        call("stow_replay_spill", recording, device_bytes, byref(result))
    return result


def _as_json(result: ReplayResult) -> "Dict[str, Any]":
    return {
        "policy": result.policy.decode(),
        "finishes": bool(result.finishes),
        "failed_at_event": None if result.finishes else result.failed_at_event,
        "peak_live_bytes": result.peak_live_bytes,
        "peak_reserved_bytes": result.peak_reserved_bytes,
        "min_limit_bytes": result.min_limit_bytes or None,
        "lower_bound_bytes": result.lower_bound_bytes or None,
        "page_calls": result.page_calls,
        "page_time_us": result.page_time_us,
        "segment_mismatches": result.segment_mismatches if result.checked else None,
        "address_mismatches": result.address_mismatches if result.checked else None,
    }


_WHOLE, _PART = 1, 2  # STOW_TUNE_WHOLE, STOW_TUNE_PART


def tune(path: str, options: TuneOptions) -> "List[Dict[str, Any]]":
    """Returns the settings that were tried, the best first, in the form of `stowage tune --json`."""
    made, info, results = c_void_p(), TuneInfo(), []
    with opened(path) as recording:
        call("stow_tune_open", byref(made), recording, byref(options))
    try:
        call("stow_tune_get_info", made, byref(info))
        for index in range(info.setting_count):
            one = TuneSetting()
            call("stow_tune_get_setting", made, index, byref(one))
            here = info.fits != 0 and index == info.batch_setting
            samples = {_WHOLE: info.batch, _PART: info.batch_part}.get(info.fits, 0)
            part = {_WHOLE: 1.0, _PART: info.batch_part / max(1, info.batch_whole)}.get(info.fits, 0.0)
            results.append(
                {
                    "settings": one.settings.decode(),
                    "best": index == info.best,
                    "recorded_with": bool(one.recorded_with),
                    "finishes": bool(one.finishes),
                    "min_limit_bytes": one.min_limit_bytes,
                    "min_limit_saved_bytes": one.min_limit_saved_bytes,
                    "peak_reserved_bytes": one.peak_reserved_bytes,
                    "peak_reserved_saved_bytes": one.peak_reserved_saved_bytes,
                    "page_time_us": one.page_time_us,
                    "batch_part": part if here else None,
                    "batch_samples": samples if here and info.batch > 1 else None,
                }
            )
    finally:
        lib().stow_tune_close(made)
    return results


# ---- reporting ----


@contextlib.contextmanager
def reported(paths: "List[str]") -> "Iterator[c_void_p]":
    """The report of one recording or of two, open inside the `with`."""
    made = c_void_p()
    with contextlib.ExitStack() as stack:
        recordings = [stack.enter_context(opened(path)) for path in paths]
        call("stow_report_open", byref(made), recordings[0], recordings[1] if len(recordings) > 1 else None)
        try:
            yield made
        finally:
            lib().stow_report_close(made)


def report_form(paths: "List[str]", form: str) -> str:
    """The report as "text", "json" or "html"."""
    text = c_char_p()
    with reported(paths) as report:
        call(f"stow_report_{form}", report, byref(text))
        return (text.value or b"").decode("utf-8", "replace")


def report_save(paths: "List[str]", to: str) -> None:
    """Writes the page."""
    with reported(paths) as report:
        call("stow_report_save", report, os.fsencode(to))
