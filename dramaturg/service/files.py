"""Files that are replaced while a server runs (certificates, keys, tokens), and TLS credentials from them.

Certificates are renewed while servers run: the server's are read again when a file changes, at the next
handshake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import grpc

from dramaturg.service.settings import ChannelSettings, ServerSettings, SettingsError

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


def server_credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """The credentials of a server, or ``None`` for plain text.

    Raises:
        SettingsError: A file cannot be read.
    """
    if settings.tls_certificate_file is None or settings.tls_private_key_file is None:
        return None
    files = settings.tls_certificate_file, settings.tls_private_key_file, settings.tls_client_ca_file
    source = ReloadingFile((file for file in files if file), partial(_server_certificate, *files))
    return grpc.dynamic_ssl_server_credentials(
        source.current(),
        source.changed,  # type: ignore[arg-type] # the stub leaves out None, which means no change
        require_client_authentication=settings.tls_client_ca_file is not None,
    )


def channel_credentials(settings: ChannelSettings) -> grpc.ChannelCredentials | None:
    """The credentials of a client, as the files are now, or ``None`` for plain text.

    Raises:
        SettingsError: A file cannot be read.
    """
    if not settings.encrypted:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=read(settings.tls_ca_file) if settings.tls_ca_file else None,
        private_key=read(settings.tls_private_key_file) if settings.tls_private_key_file else None,
        certificate_chain=read(settings.tls_certificate_file) if settings.tls_certificate_file else None,
    )


def _server_certificate(
    certificate: Path, private_key: Path, client_ca: Path | None
) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(read(private_key), read(certificate))],
        root_certificates=read(client_ca) if client_ca else None,
    )
