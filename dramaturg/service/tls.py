"""Credentials from files.

Certificates are renewed while servers run: the server's are read again when a file changes, at the next
    handshake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import grpc

from dramaturg.service.settings import ChannelSettings, ServerSettings, SettingsError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


def server_credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """The credentials of a server, or ``None`` for plain text.

    Raises:
        SettingsError: A file cannot be read.
    """
    if settings.tls_certificate_file is None or settings.tls_private_key_file is None:
        return None
    source = _ServerCertificate(
        settings.tls_certificate_file, settings.tls_private_key_file, settings.tls_client_ca_file
    )
    return grpc.dynamic_ssl_server_credentials(
        source.current(),
        source.fetch,  # type: ignore[arg-type] # the stub leaves out None, which means no change
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
        root_certificates=_read(settings.tls_ca_file) if settings.tls_ca_file else None,
        private_key=_read(settings.tls_private_key_file) if settings.tls_private_key_file else None,
        certificate_chain=_read(settings.tls_certificate_file) if settings.tls_certificate_file else None,
    )


def versions(files: Iterable[Path]) -> tuple[int, ...]:
    """Tells whether files have changed: equal for as long as none has.

    Kubernetes replaces a mounted secret by turning a symbolic link: the file behind the path is then another.

    Raises:
        SettingsError: A file is not there.
    """
    return tuple(_reading(file, lambda file: file.stat().st_mtime_ns) for file in files)


class _ServerCertificate:
    def __init__(self, certificate: Path, private_key: Path, client_ca: Path | None) -> None:
        self._certificate, self._private_key, self._client_ca = certificate, private_key, client_ca
        self._versions: tuple[int, ...] = ()

    def current(self) -> grpc.ServerCertificateConfiguration:
        found = self._stat()  # first: a change while the files are read is then seen at the next handshake
        configuration = grpc.ssl_server_certificate_configuration(
            [(_read(self._private_key), _read(self._certificate))],
            root_certificates=_read(self._client_ca) if self._client_ca else None,
        )
        self._versions = found
        return configuration

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC at every handshake, on a thread of its own; ``None`` leaves everything as it is."""
        try:
            if self._stat() == self._versions:
                return None
            configuration = self.current()
        except SettingsError:
            # A renewal may be seen half done. The old certificate serves until the new one can be read.
            logger.exception("the certificate could not be read again")
            return None
        logger.info("the certificate was read again", extra={"fields": {"file": str(self._certificate)}})
        return configuration

    def _stat(self) -> tuple[int, ...]:
        return versions(file for file in (self._certificate, self._private_key, self._client_ca) if file)


def _read(file: Path) -> bytes:
    return _reading(file, Path.read_bytes)


def _reading(file: Path, read: Callable[[Path], _T]) -> _T:
    try:
        return read(file)
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
