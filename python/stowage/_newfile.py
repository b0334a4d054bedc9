"""Creates files of the package, safe from links planted by other users."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Iterator


def write_private(path: Path, text: str) -> None:
    """Replaces the file at `path`, readable by this user alone. A reader sees the old file or the new one.

    The temporary file beside it has an unpredictable name and must be new (O_EXCL), so a planted link is not followed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_private(Path(folder, "note"), "here")
    ...     Path(folder, "note").read_text(), oct(Path(folder, "note").stat().st_mode & 0o777), os.listdir(folder)
    ('here', '0o600', ['note'])
    """
    made = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        made.replace(path)
    except BaseException:
        made.unlink()
        raise


def partial_name(path: str, ending: str) -> str:
    """Returns an unpredictable name that begins with `path` and has this ending."""
    return f"{path}.{os.urandom(6).hex()}{ending}"


@contextlib.contextmanager
def beside(path: str) -> "Iterator[str]":
    """Yields the name of a new file in the same folder. It becomes `path` at the end, or nothing is left.

    Its name begins with that of `path`, so that a file which a killed process left is recognized. It has the group and the permissions of the file it replaces, or follows the umask.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "note.txt")
    ...     Path(path).touch(0o604)
    ...     with beside(path) as made:
    ...         os.truncate(made, 4)
    ...     os.path.getsize(path), oct(os.stat(path).st_mode & 0o777), os.listdir(folder)
    (4, '0o604', ['note.txt'])
    """
    try:
        old = os.stat(path)
    except OSError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        old = None
    made = partial_name(path, os.path.splitext(path)[1])
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666 if old is None else 0o600)
    try:
        with contextlib.closing(os.fdopen(fd, "wb")):
            if old is not None:
                _keep_mode(fd, old)
        yield made
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


def _keep_mode(fd: int, old: os.stat_result) -> None:
    mode = old.st_mode & 0o777
    try:
        if os.fstat(fd).st_gid != old.st_gid:
            os.chown(fd, -1, old.st_gid)
    except OSError:
        mode &= ~0o070 | (mode & 7) << 3  # another group must not have more rights than everybody has
    os.chmod(fd, mode)
