"""Files that are replaced while a server runs: certificates, keys and tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from dramaturg.service.settings import SettingsError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class ReloadingFile(Generic[_T]):
    """A value that is read from files, and read again when one of them changes.

    Every read of the value checks the files (one ``stat`` each). The old value is kept until the new one
    can be read: the files may be renewed at different times.

    Args:
        files: The files.
        load: Reads the value; raises SettingsError on failure.

    Raises:
        SettingsError: It cannot be read.
    """

    def __init__(self, files: Iterable[Path], load: Callable[[], _T]) -> None:
        self._files = tuple(files)
        self._load = load
        self._times = modification_times(self._files)  # before the read, to notice a change during it
        self._value = load()

    def current(self) -> _T:
        """The value of the files as they are, or as they could last be read."""
        self.changed()
        return self._value

    def changed(self) -> _T | None:
        """The new value where the files have changed since the last call, else ``None``."""
        try:
            found = modification_times(self._files)
            if found == self._times:
                return None
            value = self._load()
        except SettingsError:
            logger.exception("a file that changed could not be read again")
            return None
        self._times, self._value = found, value
        logger.info("files were read again", extra={"fields": {"files": [str(file) for file in self._files]}})
        return value


def modification_times(files: Iterable[Path]) -> Sequence[int]:
    """The times at which files were changed last: equal as long as none changes.

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
