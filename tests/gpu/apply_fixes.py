#!/usr/bin/env python3
"""Apply the first fix that `stowage explain` names to the programs that failed, and see whether they finish.

usage: apply_fixes.py STOWAGE RECORDINGS [record_set2 [NAME...]]      (needs torch and one device)

RECORDINGS holds what record_causes.py (or record_set2.py) recorded of its programs failing. Each is explained; its first fix is
applied by the program's own switch for it, and the program runs again under the same limit. A fix that a program has no switch
for counts as one that does not help. Prints a line for each and "ok"/"FAIL" for the whole: at least 90% must finish.
"""
import importlib, json, os, re, subprocess, sys

import torch

import record_causes as base

if len(sys.argv) > 3:
    importlib.import_module(sys.argv[3])  # puts its programs in place of ours

# The words of a fix that means the same as the program's own switch, by cause.
SWITCH = {
    "weights_too_big": r"16 bits|half\(\)|float16",
    "one_spike": r"in parts",
    "graph_kept": r"\.item\(\)|detach\(\)",
    "no_grad_missing": r"no_grad|inference_mode",
    "eval_batch_bigger": r"training's batch size",
    "leak": r"do not (keep|make)|keep one of",
    "loaded_twice": r"map_location|keep the copy on the host|make the model once",
    "cache_held": r"empty_cache",
    "outside_framework": r"bound what else",
    "optimizer_state": r"8 bits|on the host|fused=True|foreach=False",
}
# Changes of an optimizer, alone or together with those above.
OPTIMIZER = {"8bit": r"state in 8 bits", "host": r"state on the host", "fused": r"fused=True", "foreach": r"foreach=False"}


def first_fix(stowage, path):
    done = subprocess.run([stowage, "explain", "--json", path], capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    return answer["causes"][0]["id"] if answer["causes"] else "none", answer["fixes"][0]["change"] if answer["fixes"] else ""


def switch_for(causes, fix):
    """Returns (fixed, allocator settings, hold another process?) for a fix of a program, or None."""
    part = re.search(r"1/(\d+) of the batch", fix)
    setting = re.search(r"PYTORCH_CUDA_ALLOC_CONF=(\S+)", fix)
    fraction = re.search(r"set_per_process_memory_fraction\(([0-9.]+)\)", fix)
    if part and "batch_too_big" in causes:
        return int(part.group(1)), "", True
    if setting:
        return False, setting.group(1), True
    if "end process" in fix and "other_process" in causes:
        return False, "", False
    if fraction and "limit" in causes:
        return float(fraction.group(1)), "", True
    if "no_grad" in fix and "no_grad_missing" in causes:
        return "cpu" if ".cpu()" in fix else True, "", True
    for cause in causes:
        if cause in SWITCH and re.search(SWITCH[cause], fix):
            of_optimizer = [name for name, words in OPTIMIZER.items() if re.search(words, fix)]
            return of_optimizer[0] if of_optimizer else cause if len(causes) > 1 else True, "", True
    return None


def run(kind, program, arguments, marks, fixed, setting, held):
    if program in base.HELD and held:
        base.hold(base.HELD[program](kind))
    torch.cuda.init()
    base.settle(marks)
    if setting:
        torch.cuda.memory._set_allocator_settings(setting)
    try:
        program(kind, fixed, **arguments)
    except Exception as error:
        return dict(finished=False, error=f"{type(error).__name__}: {error}"[:200])
    return dict(finished=True)


def main():
    stowage, folder = sys.argv[1:3]
    finished, all_of = 0, 0
    for name, cause, kind, program, arguments, marks in base.names():
        path = os.path.join(folder, name + ".pickle.gz")
        if not os.path.exists(path) or (len(sys.argv) > 4 and name not in sys.argv[4:]):
            continue
        all_of += 1
        answer, fix = first_fix(stowage, path)
        switch = switch_for(cause.split("+"), fix)
        result = None
        if switch is not None:
            fixed, setting, held = switch
            result = base.in_child(run, kind, program, arguments, marks, fixed, setting, held, seconds=20)
        good = result is not None and result["finished"]
        finished += good
        why = "" if good else "  no switch for it" if switch is None else "  " + (result or dict(error="no result"))["error"]
        print(f"{'finishes' if good else 'FAILS   '} {name}: {answer}: {fix[:60]}{'…' + fix[-60:] if len(fix) > 120 else ''}{why}", flush=True)
    print(f"{'ok' if all_of and finished >= 0.9 * all_of else 'FAIL'} the_first_fix_makes_it_finish: {finished} of {all_of}")


if __name__ == "__main__":
    main()
