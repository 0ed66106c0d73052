"""Credentials from files.

Certificates are renewed while servers run: the server's are read again when a file changes, at the next
    handshake.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import grpc

from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import ChannelSettings, ServerSettings


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
