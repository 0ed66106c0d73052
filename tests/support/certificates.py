"""Certificates of a throw-away authority, made by the ``openssl`` program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

LOCAL = ("DNS:localhost", "IP:127.0.0.1")
"""The names of a server on this machine."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    certificate: Path
    private_key: Path

    def replace(self, other: Certificate) -> None:
        """Puts another one in its place, as a renewal does."""
        shutil.copyfile(other.private_key, self.private_key)
        shutil.copyfile(other.certificate, self.certificate)


class Authority:
    """Signs certificates for servers on this machine and for their clients."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl program is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._private_key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", self._private_key, "-out", self.certificate),
        )

    def issue(self, name: str, *, names: Sequence[str] = LOCAL, uri: str = "") -> Certificate:
        """A certificate.

        Args:
            name: The common name, and that of the files.
            names: Whom it is good for, as alternative names with their kinds.
            uri: An identity besides, such as a SPIFFE id.
        """
        issued = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        alternatives = [*names, *([f"URI:{uri}"] if uri else [])]
        extensions.write_text(f"subjectAltName={','.join(alternatives)}\n")
        _openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", issued.private_key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._private_key),
            *("-CAcreateserial", "-days", "1", "-extfile", extensions, "-out", issued.certificate),
        )
        return issued


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
