"""Files that are replaced while a server runs: certificates, keys and tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from dramaturg.service.settings import SettingsError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Reread(Generic[_T]):
    """What is read from files, and is read again when one of them changes.

    The files are looked at whenever the value is asked for (a ``stat`` each). The old value stays until the
    new one can be read: a renewal may be seen half done.

    Args:
        files: What the value is read from.
        load: Reads it. Raises SettingsError where it cannot.

    Raises:
        SettingsError: It cannot be read.
    """

    def __init__(self, files: Iterable[Path], load: Callable[[], _T]) -> None:
        self._files = tuple(files)
        self._load = load
        self._versions = versions(self._files)  # first: a change while the files are read is then seen
        self._value = load()

    def current(self) -> _T:
        """The value of the files as they are, or as they could last be read."""
        self.renewed()
        return self._value

    def renewed(self) -> _T | None:
        """The value where the files have changed since the last time, else ``None``."""
        try:
            found = versions(self._files)
            if found == self._versions:
                return None
            value = self._load()
        except SettingsError:
            logger.exception("a file that changed could not be read again")
            return None
        self._versions, self._value = found, value
        logger.info("files were read again", extra={"fields": {"files": [str(file) for file in self._files]}})
        return value


def versions(files: Iterable[Path]) -> Sequence[int]:
    """Tells whether files have changed: equal for as long as none has.

    Kubernetes replaces a mounted secret by turning a symbolic link: the file behind the path is then another.

    Raises:
        SettingsError: A file is not there.
    """
    return tuple(_reading(file, lambda file: file.stat().st_mtime_ns) for file in files)


def read(file: Path) -> bytes:
    """The content of a file.

    Raises:
        SettingsError: It cannot be read.
    """
    return _reading(file, Path.read_bytes)


def _reading(file: Path, look: Callable[[Path], _T]) -> _T:
    try:
        return look(file)
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
