"""run [NAME]: runs the package's tests, or those of test_NAME.py, and prints a line for each: ok, FAIL or skip, as tests/run.sh counts them.

In CI (CI=true) a missing library is a failure, not a skip. Of the long tests a run takes a part (support.in_turn).
"""

import os
import sys
import time
import unittest
from pathlib import Path

import support

HERE = Path(__file__).resolve().parent
#: These look at every object of the process. There are ten times as many once the other files have imported their frameworks.
FIRST = ("release", "others", "holders")


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

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            print((self.failures if issubclass(err[0], test.failureException) else self.errors)[-1][1])
            self._line("FAIL", test, subtest._subDescription())

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if os.environ.get("CI") == "true" and "not installed" in reason:
            self.errors.append((test, reason))
            self._line("FAIL", test, reason)
        else:
            self._line("skip", test, reason)


def main() -> int:
    names = sorted(path.stem[5:] for path in HERE.glob("test_*.py"))
    if len(sys.argv) > 1:
        os.environ["STOWAGE_TEST_LONG"] = "1"
        names = [name for name in names if name == sys.argv[1]]
    result = Lines()
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    for name in names:  # a file is imported when those before it are done
        unittest.defaultTestLoader.loadTestsFromName(f"test_{name}").run(result)
    if support.left_out:
        print(f"  {len(support.left_out)} tests are left to other seeds and to make test-long: {', '.join(support.left_out)}")
    return 1 if result.failures or result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
