"""Runs the programs of test_py (numpy.bash), each in a fork of this process, so that NumPy is imported once and not by every test.

forks.py PRELUDE. Each line on standard input is a folder, a program, a log and the output of `env -0`, separated by tabs. The program
runs in the folder with that environment, its output goes to the log, and its exit code is the answer on standard output.
"""

import atexit
import os
import runpy
import sys
import traceback

import data_common  # noqa: F401  imported here for the programs


def run(program):
    try:
        runpy.run_path(program, run_name="__main__")
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def child(folder, program, log, environment):
    with open(environment, "rb") as file:
        variables = dict(one.split(b"=", 1) for one in file.read().split(b"\0") if b"=" in one)
    for name in set(os.environb) - set(variables):
        del os.environb[name]
    os.environb.update(variables)
    os.chdir(folder)
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, fd in ((0, nothing), (1, to), (2, to)):
        os.dup2(fd, number)
    code = run(program)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


exec(sys.argv[1])  # what the programs import first
while True:
    line = sys.stdin.readline()
    if not line:
        break
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(*line.rstrip("\n").split("\t"))
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status, flush=True)
