"""Which datasets a gateway may read for its callers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dramaturg.datasets import local_path, open_source
from dramaturg.service.errors import invalid

URI_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
"""The kinds of address that are read by default, besides local files: object stores, which have credentials
of their own. Not http, by which a gateway could be made to ask its own network."""

_URI = "spec.dataset.uri"


@dataclass(frozen=True)
class DatasetAccess:
    """What a gateway may read for a run."""

    folders: Sequence[Path] = ()
    """Local files are read only below these. Empty: none is read."""
    schemes: Sequence[str] = URI_SCHEMES
    """The kinds of address that are read, without "://"."""

    def check(self, address: str) -> None:
        """Refuses an address that must not be read, whether it is there or not.

        Raises:
            ServiceError: INVALID_ARGUMENT naming ``spec.dataset.uri``.
        """
        path = local_path(address)
        if path is not None:
            self._resolve(path)
            return
        scheme, _, rest = address.partition("://")
        # Such as "simplecache::file:///etc/passwd", by which fsspec goes from one kind to another.
        if scheme not in self.schemes or "::" in address or not rest:
            known = ", ".join(f"{scheme}://" for scheme in self.schemes) or "none"
            raise invalid(
                _URI, f"is no address that this gateway reads; besides local files it reads {known}"
            )

    @contextmanager
    def open(self, address: str, *, seekable: bool = False) -> Iterator[BinaryIO]:
        """Opens what ``check`` lets pass.

        Raises:
            ServiceError: As ``check`` does.
            OSError: It cannot be opened.
            DatasetError: What it needs is not installed.
        """
        self.check(address)
        path = local_path(address)
        if path is None:
            with open_source(address, seekable=seekable) as remote:
                yield remote
            return
        # Links are resolved, so the last part is none, unless somebody puts one there meanwhile. A pipe would
        # be waited for.
        descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise invalid(_URI, "is no regular file")
            yield file

    def _resolve(self, path: Path) -> Path:
        if not path.is_absolute():
            raise invalid(_URI, "is no absolute path")
        try:
            resolved = path.resolve()
            inside = any(resolved.is_relative_to(folder.resolve()) for folder in self.folders)
        except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a NUL
            raise invalid(_URI, f"is no path: {error}") from error
        if not inside:
            # Not which ones: a caller need not know how the gateway's machine is laid out.
            raise invalid(_URI, "is not below a folder that this gateway reads datasets from")
        return resolved
