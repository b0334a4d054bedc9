"""New files of the package's own, made so that nobody else can steer where they go."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replaces the file at `path`, readable by this user alone. A reader sees the old file or the new one.

    The file beside it has a name that cannot be foreseen and must be new (O_EXCL), so a link planted there is not followed.

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
