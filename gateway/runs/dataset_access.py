"""Decides which datasets a gateway may read, and how much of them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from dramaturg.datasets import local_path, open_source
from dramaturg.service.errors import invalid

URI_SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")
"""The URI schemes read by default, besides local files: object stores, which have credentials of their own.
http is excluded, since callers could make the gateway send requests into its own network."""

_URI = "spec.dataset.uri"
_UNSAFE = re.compile(r"[?#\\\x00-\x1f\x7f]|%(?:2e|2f|5c)", re.IGNORECASE)


TENANT = "{tenant}"
"""Stands for the tenant's name in folders and prefixes."""

_AUTHORITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class DatasetAccess:
    """The datasets that a gateway may read."""

    folders: Sequence[Path] = ()
    """The folders below which local files are read. Empty: none."""
    schemes: Sequence[str] = URI_SCHEMES
    """The URI schemes that are read, without "://"."""
    prefixes: Sequence[str] | None = None
    """The addresses below which objects are read, for example "s3://data/team-a/". None: all."""
    max_rows: int | None = None
    """The most rows of a dataset. None: any number."""
    max_bytes: int | None = None
    """The most bytes of a dataset, also when it is decompressed and decoded. None: any number."""

    def of(self, tenant: str) -> DatasetAccess:
        """The access of a tenant, whose name replaces ``TENANT`` in folders and prefixes.

        Without prefixes a tenant reads no objects: the gateway's credentials are those of all tenants. A
        caller without a tenant has no entries with ``TENANT``.
        """
        folders = [folder for folder in map(str, self.folders) if tenant or TENANT not in folder]
        prefixes = self.prefixes
        if prefixes is not None:
            prefixes = [prefix for prefix in prefixes if tenant or TENANT not in prefix]
        return replace(
            self,
            folders=tuple(Path(folder.replace(TENANT, tenant)) for folder in folders),
            prefixes=(
                (() if tenant else None)
                if prefixes is None
                else tuple(prefix.replace(TENANT, tenant) for prefix in prefixes)
            ),
        )

    def check(self, address: str) -> None:
        """Refuses an address that must not be read, whether it exists or not.

        Raises:
            ServiceError: INVALID_ARGUMENT naming ``spec.dataset.uri``.
        """
        path = local_path(address)
        if path is not None:
            self._resolve(path)
            return
        scheme, _, rest = address.partition("://")
        # fsspec chains schemes, for example "simplecache::file:///etc/passwd".
        if scheme not in self.schemes or "::" in address or not rest:
            known = ", ".join(f"{scheme}://" for scheme in self.schemes) or "none"
            raise invalid(
                _URI, f"has a scheme that this gateway does not read; besides local files it reads {known}"
            )
        authority, _, key = rest.partition("/")
        # Stores differ in how they read such parts.
        if not key or any(part in {"", ".", ".."} for part in key.split("/")) or _UNSAFE.search(key):
            raise invalid(
                _URI,
                "names an object with an empty part, '.', '..', '?', '#', '\\', a control, %2E, %2F or %5C",
            )
        if self.prefixes is None:
            # Names an account or a host of the caller's choice, to which credentials would be sent.
            if not _AUTHORITY.fullmatch(authority):
                raise invalid(
                    _URI, "has a bucket that is not a plain name; runs.dataset_prefixes allows others"
                )
        elif not any(address.startswith(prefix) for prefix in map(_folder, self.prefixes)):
            # The prefixes are not named: callers need not know those of other tenants.
            raise invalid(_URI, "is outside of the prefixes that this gateway reads for the caller")

    @contextmanager
    def open(self, address: str) -> Iterator[BinaryIO]:
        """Opens an address that ``check`` accepts, seekable: an object is copied to a temporary file.

        Raises:
            ServiceError: As ``check`` does.
            OSError: It cannot be opened.
            DatasetError: The library of the scheme is not installed, or an object is too large.
        """
        self.check(address)
        path = local_path(address)
        if path is None:
            with open_source(address, seekable=True, max_bytes=self.max_bytes) as remote:
                yield remote
            return
        # The path has no links left; O_NOFOLLOW refuses one that appears meanwhile, O_NONBLOCK a blocking
        # pipe.
        descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise invalid(_URI, "is not a regular file")
            yield file

    def _resolve(self, path: Path) -> Path:
        if not path.is_absolute():
            raise invalid(_URI, "is not an absolute path")
        try:
            resolved = path.resolve()
            inside = any(resolved.is_relative_to(folder.resolve()) for folder in self.folders)
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
            raise invalid(_URI, f"is not a valid path: {error}") from error
        if not inside:
            # The folders are not named: the layout of the host is not disclosed to callers.
            raise invalid(_URI, "is outside of the folders that this gateway reads datasets from")
        return resolved


def _folder(prefix: str) -> str:
    """A prefix that ends at a part of a name: "s3://data/a" does not cover "s3://data/ab"."""
    return prefix if prefix.endswith("/") else f"{prefix}/"
