"""Bearer tokens from a file that holds their hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from dramaturg.service.auth.caller import Caller
from dramaturg.service.auth.errors import UnauthenticatedError
from dramaturg.service.auth.settings import Grant
from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import SettingsError, explain

MOST_TOKENS = 1000
"""The maximum number of tokens in a file: each token is compared with all. Use JWTs for more callers."""


class TokenEntry(Grant):
    """One ``[[tokens]]`` table."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """The SHA-256 of the token, in lower-case hexadecimal digits."""
    principal: str = Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")
    """The principal; printable ASCII."""
    expires: AwareDatetime | None = None
    """When it expires, with the offset from UTC. Absent: never."""


class _TokenFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tokens: tuple[TokenEntry, ...] = Field(max_length=MOST_TOKENS)


class StaticTokens:
    """The tokens of a file, which is read again when it changes.

    Raises:
        SettingsError: The file cannot be read or is invalid.
    """

    def __init__(self, file: Path) -> None:
        self._entries = ReloadingFile([file], lambda: _load(file))

    def find(self, token: str) -> Caller | None:
        """The caller with the token; ``None`` where the file has no such token.

        Every hash is compared, each in constant time (RFC 6750, section 5.2, asks for hashes or the like).

        Raises:
            UnauthenticatedError: The token has expired.
        """
        digest = hashlib.sha256(token.encode()).digest()
        found: TokenEntry | None = None
        for known, entry in self._entries.current():
            if hmac.compare_digest(known, digest):
                found = entry
        if found is None:
            return None
        if found.expires is not None and found.expires <= datetime.now(UTC):
            raise UnauthenticatedError(f"the token of {found.principal} has expired")
        return Caller(found.principal, found.tenant, frozenset(found.roles))


def _load(file: Path) -> Sequence[tuple[bytes, TokenEntry]]:
    try:
        text = read(file).decode()
        table = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        entries = _TokenFile.model_validate(table).tokens
    except ValidationError as error:
        raise SettingsError(f"{file}: {explain(error)}") from error
    except ValueError as error:  # TOML, JSON and UTF-8; their messages may show a part of the file
        kind = type(error).__name__
        raise SettingsError(
            f"{file} cannot be read: it is no {file.suffix or 'TOML'} file ({kind})"
        ) from None
    return [(bytes.fromhex(entry.sha256), entry) for entry in entries]
