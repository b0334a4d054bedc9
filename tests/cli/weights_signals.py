"""weights_signals.py STOWAGE: what shrink and merge say when a signal ends them. Run by weights.sh, in a folder with large.safetensors."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

from files import write

STOWAGE = sys.argv[1]
os.mkdir("signals")
write("signals/adapter_model.safetensors", {f"layers.0.lora_{side}.weight": (shape, [0.5] * (shape[0] * shape[1])) for side, shape in (("A", [1, 4096]), ("B", [2048, 1]))})
with open("signals/adapter_config.json", "w") as file:
    json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1}, file)


def ended(number, *words):
    """Ends a run by a signal once it writes; returns what it says."""
    out = words[words.index("-o") + 1].rstrip("/")
    if os.path.exists(out + ".resume"):
        os.remove(out + ".resume")
        shutil.rmtree(out + ".partial", ignore_errors=True)
    job = subprocess.Popen([STOWAGE, *words, "--threads", "1"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not os.path.exists(out + ".resume") and job.poll() is None:
        time.sleep(0.001)
    job.send_signal(number)
    said = job.communicate()[1]
    assert job.returncode == -number, (words, job.returncode, said)
    return said


for number, how in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")):
    for words in (("shrink", "large.safetensors", "-o", "stopped.safetensors", "--dtype", "bf16", "--verify"), ("merge", "large.safetensors", "signals", "-o", "stopped/")):
        said = ended(number, *words)
        name = words[3 if words[0] == "shrink" else 4].rstrip("/")
        assert f"stowage {words[0]}: {how} before the first checkpoint" in said and f"{name}.partial" in said, said

os.remove("stopped.safetensors.resume")
# With a checkpoint (a record of any content behind its start), it says how to continue.
for number, how in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")):
    job = subprocess.Popen([STOWAGE, "shrink", "large.safetensors", "-o", "stopped.safetensors", "--dtype", "bf16", "--threads", "1"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not (os.path.exists("stopped.safetensors.resume") and os.path.getsize("stopped.safetensors.resume") == 24):
        time.sleep(0.001)
    with open("stopped.safetensors.resume", "ab") as file:
        file.write(bytes(64))
    job.send_signal(number)
    said = job.communicate()[1]
    os.remove("stopped.safetensors.resume")
    assert f"{how}; stopped.safetensors.partial is kept: run the same command with --resume to continue" in said, said
