"""Runs in a Python process of `stowage run` (watcher.c), and reports what fills its host memory.

report() runs when `stowage run` asks, and at the exit of a process that holds much or ends by a MemoryError. It writes the
largest things that variables hold, and where the main thread is, to PID.objects in the folder of the run (lines: host_record.h).
python/stowage/_holders.py, which the build puts before this file, finds them. The process may be killed at any moment, so a first
answer is written in steps; a later one replaces it when it is complete.

shim_log(text), shim_state(), shim_keep(bytes) and shim_text(path) are the library's. Unlike Python's own file
functions they do not release the interpreter's lock, so no Python thread fills memory meanwhile, or lets go of what is searched.
shim_share() lets other threads have the lock as usual.
"""
STEP = 0.02  # seconds after which a first answer is written with what is found so far

texts = {}  # lines of the program's files; emptied after each report


def source_lines(path):
    if path not in texts:
        texts[path] = shim_text(os.fsencode(path)).decode("utf-8", "replace").split("\n")
    return texts[path]


def limits():
    """Returns the limits of this process itself (ulimit -v, RLIMIT_AS), in words that message.c reads."""
    import resource

    lines = []
    for name, limit in (("address space", resource.RLIMIT_AS), ("data", resource.RLIMIT_DATA)):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            lines.append(f"the {name} of the process is limited to {most} bytes\n")
    return "".join(lines)


def space_line():
    """Returns a line with the limit on the address space and the most that was used of it; none without a limit."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    words = shim_text(b"/proc/self/status").partition(b"VmPeak:")[2].split()
    return [f"{RUN_LINE_SPACE}\t{most}\t{int(words[0]) << 10}"] if most != resource.RLIM_INFINITY and words else []


def keep_error(error):
    """Called when the program ends with an exception about memory: keeps its text and its lines."""
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)) + limits()
    path = f"{os.path.dirname(os.environ[ENV_WATCH])}/{os.getpid()}{RUN_ERROR}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def failed_frame():
    """Returns the innermost frame of the exception that ended the program, None if there was none."""
    trace = getattr(getattr(sys, "last_value", None), "__traceback__", None)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else None


class Answer:
    def __init__(self, held=0, lines=(), pid=0, began=None):
        self.held, self.lines, self.pid, self.time = held, lines, pid, time.monotonic()
        self.spent_us = int((time.thread_time() - began) * 1e6) if began is not None else 0
        self.turns = 0  # answers so far between which the program went on while memory without a name grew
        self.unnamed, self.named, self.names, self.pulse = held, 0, (), 0

    def keep(self, serial, whole):
        asked = f"{RUN_LINE_ASKED}\t{serial}\t{self.held}\t{int(whole)}\t{self.spent_us}\t{self.turns}\t{len(sys.modules)}"
        shim_keep("\n".join([asked, *self.lines, ""]).encode("utf-8", "replace"))


SHARE = 0.01  # of the time of this process: what all answers together may take while memory is not short
SHORTEST = 0.004  # seconds of a search in any case

spent = 0.0  # seconds of this process that answers took so far


def allowed(thorough):
    """Returns the seconds of its own time that a search may take."""
    return SECONDS if thorough else min(SECONDS, max(SHORTEST, SHARE * time.process_time() - spent))


AGAIN = 0.002  # seconds that the program goes on before a search that found almost nothing is repeated
QUICK = 0.02  # seconds: a search that took longer is not repeated, because the program waits for it


def searched(main, others, held, collecting, at_exit, thorough):
    """Yields what largest() finds. If that is almost nothing, searches once more a moment later: an object that is passed from one
    function to another has no name meanwhile."""
    size, known, began = 0, set(), time.monotonic()
    for one in largest(main, others, held, collecting, allowed(thorough)):
        size += one[0]
        known.add(one[1].owner or one[2:4])
        yield one
    if size < held // 8 and not at_exit and time.monotonic() < began + QUICK:
        shim_share()
        time.sleep(AGAIN)
        yield from (one for one in largest(*threads(), held, collecting, allowed(thorough)) if (one[1].owner or one[2:4]) not in known)


def named_by(found):
    """Returns the bytes of what has a name of the program's."""
    return sum(size for size, _, name, *_ in found if not name.startswith(MADE))


def is_better(found, before):
    """Returns whether an answer at the exit says more than the last one: it names more of what that one named, or much more. What a
    function returned has another name by then, and no longer the line that filled it."""
    most = max(found, key=lambda one: one[0], default=(0, None, ""))
    return named_by(found) > (before.named if most[2] in before.names else before.named // 4 * 5)


last = Answer()  # the last whole one; of its parent, in a child of fork
LATELY = 5  # seconds


def report():
    global last, spent
    collecting, began = gc.isenabled(), time.thread_time()
    gc.disable()
    try:
        wrote = time.monotonic()  # not the time that other programs take
        serial, held, at_exit, thorough = shim_state()
        if at_exit and isinstance(getattr(sys, "last_value", None), MemoryError):
            keep_error(sys.last_value)
            thorough = True
        # Memory that was freed since is not looked at again. What is held as before may have got a name.
        if at_exit and last.pid == os.getpid() and held < last.held - last.held // 64:
            return True
        first = last.pid != os.getpid()
        spent = 0.0 if first else spent
        # If memory comes and goes, the answer with the most bytes is kept, or a newer one with about as many.
        about = last.held // 4 * 3 if wrote > last.time + LATELY else last.held // 10 * 9
        if not first and not at_exit and held <= about:
            last.keep(serial, True)
            return False
        if first and not at_exit:
            began = 0.0  # of this thread: loading this script counts too
        # At exit only the variables of modules are left, and those of the functions that an exception went through.
        main, others = (failed_frame(), []) if at_exit else threads()
        if not first and main is not None and main.f_code.co_name == "__del__":  # what ends has no name any more
            last.keep(serial, True)
            return False
        frames, found = space_line() + frame_lines(None if at_exit else main), []
        if first:
            Answer(held, frames).keep(serial, False)
        try:
            for one in searched(main, others, held, collecting, at_exit, thorough):
                found.append(one)
                if first and time.monotonic() > wrote + STEP:
                    Answer(held, object_lines(found, main, placed=False) + frames).keep(serial, False)
                    wrote = time.monotonic()
        finally:
            named = sum(size for size, *_ in found)
            # At exit functions have returned: an answer has to name more.
            if first or not at_exit or is_better(found, last):
                before, last = last, Answer(held, object_lines(found, main) + frames, os.getpid(), began)
                last.unnamed, last.named, last.pulse = held - named, named_by(found), pulse(main)
                last.names = {one[2] for one in found}
                went_on = before.pid == last.pid and last.pulse != before.pulse and last.unnamed > before.unnamed
                went_on = went_on and 2 * last.named >= before.named  # what had a name before still exists: the search missed it
                last.turns = before.turns + int(went_on) if before.pid == last.pid else 0
            last.keep(serial, True)
    except Exception as error:
        shim_log(f"report: {error!r}")
    finally:
        spent += time.thread_time() - began
        texts.clear()
        if collecting:
            gc.enable()
    return False
