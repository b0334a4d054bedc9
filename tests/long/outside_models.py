"""outside_models.py STOWAGE FOLDER [WORD…]: model files as other programs write them, through shrink, merge and inspect.

Every output is read by safetensors, gguf, compressed-tensors, peft or transformers and compared with what PyTorch or PEFT computes.
STOWAGE_OLD_TORCH names the Python of an old PyTorch (1.13), which writes some of the inputs. Prints "ok NAME", "skip NAME: why" or
"FAIL NAME: why" for each check.
"""


import os
import sys
import traceback

import outside_model_adapters  # noqa: F401  (each module registers its checks)
import outside_model_files  # noqa: F401
import outside_model_folders  # noqa: F401
from outside_model_base import CHECKS, FOLDER, Skipped


def main():
    os.chdir(FOLDER)
    words, failed, skipped = sys.argv[3:], 0, 0
    chosen = [c for c in CHECKS if not words or any(word in c[0] for word in words)]
    for name, function, arguments in chosen:
        try:
            function(*arguments)
            print("ok", name, flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"skip {name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name}: {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
    print(f"{'FAIL' if failed else 'ok'} outside_models: {len(chosen)} checks, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
