"""Streams and events of the device, by their handles, for the scripts that follow this one (trim.c).

PyTorch's own objects take 10 to 50 us per call, as long as a kernel takes. A training step of GPT-2 made 3000 such calls; it was the host
that could not keep up, not the bus.
"""


def done(code):
    """Raises an error if a call of the driver failed."""
    if code:
        raise RuntimeError(f"CUDA error {code}")


class Mark:
    """A point in the work of a lane. Its event is reused once the mark is gone; waits that were submitted before are not affected."""
    __slots__ = "event", "events"

    def __init__(self, event, events):
        self.event, self.events = event, events

    def __del__(self):
        self.events.append(self.event)


class Lane:
    """A stream of one device. `events`: free events of that device. `near`: a second stream, for the parts of copies that stay within vram.
    The bus does not wait for them."""

    def __init__(self, stream, events, near=None):
        self.stream, self.handle, self.events = stream, stream.cuda_stream, events
        self.near_stream, self.near = near, near.cuda_stream if near is not None else self.handle

    def recorded(self, handle):
        events = self.events
        event = events.pop() if events else shim_event()
        if not event:
            raise RuntimeError("no event")
        mark = Mark(event, events)
        done(shim_record(event, handle))
        return mark

    def mark(self):
        """Returns the point after what was submitted so far."""
        if self.near_stream is not None:
            done(shim_wait(self.handle, self.recorded(self.near).event))
        return self.recorded(self.handle)

    def wait(self, mark):
        done(shim_wait(self.handle, mark.event))
        if self.near_stream is not None:
            done(shim_wait(self.near, mark.event))

    def copy_bytes(self, to, source, size):
        """Copies between two addresses, one tier after another: pages may be in vram or on the host."""
        done(shim_copy(to, source, size, self.handle, self.near))

    def copy(self, to, source):
        """Copies a tensor to another one of the same layout."""
        self.copy_bytes(to.data_ptr(), source.data_ptr(), to.numel() * to.element_size())


def current_of(torch):
    """Returns a function that returns the handle of the current stream of a device."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)
