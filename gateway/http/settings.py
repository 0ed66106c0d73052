"""Settings of the API over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?")
ANY_ORIGIN = "*"


class HttpSettings(BaseModel):
    """The table ``http`` of the section ``gateway``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: int | None = Field(default=None, ge=0, le=65535)
    """The port to listen on. 0: none. Absent: none, except with ``dramaturg up``, which takes 50080, or a
    free port where that is taken."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). Read again when it changes. Absent: the TLS files of the section
    ``server``, its ``tls_client_ca_file`` included."""
    tls_private_key_file: Path | None = None
    """The private key of the certificate (PEM)."""
    tls_client_ca_file: Path | None = None
    """The authorities (PEM) one of which must have signed the client's certificate. The certificate does not
    identify the caller: that needs a token. Absent: any client."""
    allowed_origins: tuple[str, ...] = ()
    """The origins of the web pages that may call the API, for example "https://app.example". "*": every
    page. Empty: no page."""
    body_timeout_seconds: float = Field(default=60, gt=0, le=3600)
    """The time in which the body of a request with one message must arrive."""
    session_keys_file: Path | None = None
    """The keys that several gateways share, so that each knows the sessions of the console of all: 32 random
    bytes in base64 a line. The first key encrypts, all decrypt. Read again when it changes. Absent, or a file
    that does not exist at the start: sessions are in the memory of one gateway."""

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"has {origin!r}, which is no origin: a scheme, a host in lower case and an optional "
                    'port, for example "https://app.example"'
                )
        return origins

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tls_certificate_file is None) != (self.tls_private_key_file is None):
            raise ValueError("tls_certificate_file and tls_private_key_file are set together or not at all")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_client_ca_file needs tls_certificate_file")
        return self
