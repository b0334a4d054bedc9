"""Runs the package's tests and prints a line for each: ok, FAIL or skip, as tests/run.sh counts them.

In CI (CI=true) a missing library is a failure, not a skip.
"""

import os
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: These look at every object of the process, of which there are ten times as many once the frameworks are imported.
FIRST = ("test_holders", "test_release")


class Lines(unittest.TestResult):
    def _line(self, what, test, why=""):
        module, _, name = test.id().rpartition(".")
        print(f"{what} {module.split('.')[0].replace('test_', '')}/{name}{': ' + why if why else ''}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def addSuccess(self, test):
        self._line("ok", test)
        took = time.monotonic() - self._began
        if took > 10:
            print(f"  ({took:.0f} s)")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1])
        self._line("FAIL", test)

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1])
        self._line("FAIL", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if os.environ.get("CI") == "true" and "not installed" in reason:
            self.errors.append((test, reason))
            self._line("FAIL", test, reason)
        else:
            self._line("skip", test, reason)


def in_order(suite):
    """Returns the tests of all files, those of FIRST first."""

    def flat(part):
        return [part] if isinstance(part, unittest.TestCase) else [test for inner in part for test in flat(inner)]

    files = list(suite)
    tests = {id(file): flat(file) for file in files}
    files.sort(key=lambda file: not (tests[id(file)] and tests[id(file)][0].id().split(".")[0] in FIRST))
    return unittest.TestSuite(files)


def main() -> int:
    sys.path.insert(0, str(HERE))
    pattern = f"test_{sys.argv[1]}.py" if len(sys.argv) > 1 else "test_*.py"
    suite = in_order(unittest.defaultTestLoader.discover(str(HERE), pattern=pattern))
    result = Lines()
    suite.run(result)
    return 1 if result.failures or result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
