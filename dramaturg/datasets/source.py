"""Opens datasets: by path, by ``file://`` address, or by the address of an object store.

The bytes that are read are counted and hashed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from dramaturg.datasets.errors import DatasetError, missing
from dramaturg.datasets.limits import check_decoded_bytes

CHUNK_BYTES = 1 << 20
"""How much is read at once."""
STANDARD_INPUT = "-"
"""The name of standard input."""
_SEPARATOR = "://"


class Meter(io.RawIOBase):
    """A file whose bytes are counted and hashed as they are read. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._hash = hashlib.sha256()
        self.byte_count = 0
        """How many bytes were read."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes read, in lower-case hexadecimal."""
        return self._hash.hexdigest()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fills the buffer, except at the end of the file, so that reads do not depend on the medium."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # a buffer, which 3.11 cannot say
        count = 0
        while count < len(view) and (piece := self._file.read(len(view) - count)):
            view[count : count + len(piece)] = piece
            count += len(piece)
        self._hash.update(view[:count])
        self.byte_count += count
        return count


def read_to_end(file: BinaryIO) -> None:
    """Reads the rest of a file, for its count and hash."""
    while file.read(CHUNK_BYTES):
        pass


def is_remote(address: str) -> bool:
    """Whether an address is that of an object store or the like, such as "s3://bucket/rows.parquet"."""
    return local_path(address) is None


def local_path(address: str) -> Path | None:
    """The path of a local file, which is a path or a ``file://`` address. None: it is remote."""
    if _SEPARATOR not in address:
        return Path(address)
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in {"", "localhost"} else None


@contextmanager
def open_source(address: str, *, seekable: bool = False, max_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Opens a dataset in binary.

    Args:
        address: A path, a ``file://`` address, or one that fsspec supports (the extra "datasets").
        seekable: Whether it must be possible to read it at any place. A remote one is then copied to a
            temporary file, so that it is fetched once.
        max_bytes: The most bytes of such a copy. None: any number.

    Raises:
        OSError: It cannot be opened.
        DatasetError: A package for its address is not installed, its kind of address is unknown, or it has
            more bytes.
    """
    path = local_path(address)
    if path is not None:
        with path.open("rb") as file:
            yield file
        return
    with _open_remote(address) as remote:
        if not seekable:
            yield remote
            return
        with spooled(remote, max_bytes) as kept:
            yield kept


@contextmanager
def spooled(file: BinaryIO, max_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Yields a temporary file with the rest of another file.

    Raises:
        DatasetError: The rest has more bytes.
    """
    with tempfile.TemporaryFile() as kept:
        count = 0
        while piece := file.read(CHUNK_BYTES):
            count += len(piece)
            check_decoded_bytes(count, max_bytes)
            kept.write(piece)
        kept.seek(0)
        yield cast("BinaryIO", kept)


def _open_remote(address: str) -> BinaryIO:
    scheme = address.partition(_SEPARATOR)[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise missing(f"at {scheme}{_SEPARATOR}", "fsspec") from error
    try:
        # Not fsspec.open, which takes a * in the name for a pattern.
        system, path = url_to_fs(address)
        return cast("BinaryIO", system.open(path, "rb"))
    except ImportError as error:
        raise DatasetError(
            f"is at {scheme}{_SEPARATOR}, which needs a package that is not installed: {error}"
        ) from error
    except FileNotFoundError:
        # Stores state the path alone.
        raise FileNotFoundError(errno.ENOENT, "the object does not exist", address) from None
    except OSError:
        raise
    except ValueError as error:
        raise DatasetError(f"has an address that cannot be opened: {error}") from error
    except Exception as error:  # stores have errors of their own
        raise OSError(f"{type(error).__name__}: {error}") from error
