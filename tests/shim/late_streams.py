"""Lanes for tests of the shim's scripts: as late as their marks allow."""
import ctypes


class Mark:

    def __init__(self, lane):
        self.lane, self.position = lane, len(lane.work)

    def happen(self):
        self.lane.run(self.position)


class Lane:
    """Does its work when it is waited for. The program's own lane (`home`) works at once."""

    def __init__(self, home=False):
        self.work, self.done, self.home, self.handle = [], 0, home, id(self)
        self.copied = 0

    def mark(self):
        return Mark(self)

    def wait(self, mark):
        if self.home:
            mark.happen()
        else:
            self.work.append(mark.happen)

    def copy_bytes(self, to, source, size):
        # By address, because a reference would count as a use.
        self.copied += 1
        self.work.append(lambda: ctypes.memmove(to, source, size))

    def copy(self, to, source):
        self.copied += 1
        self.work.append(lambda: to.copy_(source))

    def run(self, position):
        while self.done < position:
            self.done += 1
            self.work[self.done - 1]()
            self.work[self.done - 1] = None
