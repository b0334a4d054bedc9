"""Streams for tests of the shim's scripts: as late as their events allow."""


class Event:

    def record(self, stream):
        self.stream, self.position = stream, len(stream.work)

    def happen(self):
        self.stream.run(self.position)


class Stream:
    """Does its work when it is waited for. The program's own stream (`home`) works at once."""

    def __init__(self, home=False):
        self.work, self.done, self.home = [], 0, home

    def wait_event(self, event):
        if self.home:
            event.happen()
        else:
            self.work.append(event.happen)

    def run(self, position):
        while self.done < position:
            self.done += 1
            self.work[self.done - 1]()
            self.work[self.done - 1] = None
