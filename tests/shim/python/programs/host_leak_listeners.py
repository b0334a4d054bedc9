"""Every page listens to a bus that never lets go of who listens."""


class Bus:
    def __init__(self):
        self.listeners = []

    def on(self, listener):
        self.listeners.append(listener)


class Page:
    __slots__ = ("body",)

    def __init__(self, bus, number):
        self.body = bytearray(b"%d" % (number % 10)) * 200_000
        bus.on(self.changed)

    def changed(self, event):
        self.body[0] = event


bus = Bus()
for number in range(100_000):
    Page(bus, number)
