"""Sessions of visitors that signed in with a bearer token."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from dramaturg.service.files import ReloadingFile
from dramaturg.service.settings import SettingsError

logger = logging.getLogger(__name__)

COOKIE = "dramaturg_session"
"""The name of the cookie with the id of a session."""
LIFETIME_SECONDS = 12 * 3600.0
"""The time after which a visitor signs in again."""
MAX_SESSIONS = 10_000
"""The most sessions in memory."""
MAX_SEALED_BYTES = 3_800
"""The longest sealed session. Browsers drop cookies above 4,096 bytes with name and attributes."""
_KEY_BYTES = 32


@dataclass(frozen=True)
class _Session:
    token: str
    owner: str
    expires: float


class Sessions:
    """The tokens of the visitors, in the memory of this process. A browser has only the id of its session.

    A visitor has one session: its next sign-in ends it.

    Args:
        most: The most sessions. Above it the oldest one ends.
    """

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self._sessions: dict[str, _Session] = {}
        self._ids: dict[str, str] = {}
        """The id of the session of each owner."""

    def open(self, token: str, owner: str) -> str:
        """Begins a session in place of the owner's last one, and returns its id.

        Args:
            token: The visitor's token.
            owner: The visitor.
        """
        self._end(self._ids.get(owner, ""))
        if len(self._sessions) >= self._most:
            self._end(next(iter(self._sessions)))
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = _Session(token, owner, time.monotonic() + LIFETIME_SECONDS)
        self._ids[owner] = session_id
        return session_id

    def token(self, session_id: str) -> str | None:
        """The token of a session; None: it does not exist or has expired."""
        session = self._sessions.get(session_id)
        if session is not None and session.expires <= time.monotonic():
            self._end(session_id)
            return None
        return None if session is None else session.token

    def close(self, session_id: str) -> None:
        """Ends a session, if it exists."""
        self._end(session_id)

    def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            del self._ids[session.owner]


class SealedSessions(Sessions):
    """The tokens of the visitors, encrypted in their cookies with keys that several gateways share.

    Every gateway with the key of a session knows it. A session ends after ``LIFETIME_SECONDS``, with its
    token, or with its key. The visitor's sign-out or next sign-in ends it at the gateway that serves them; at
    each other one it ends when a later session of the visitor arrives there. A token whose sealed form is
    longer than ``MAX_SEALED_BYTES`` stays in the memory of this process.

    Args:
        file: The keys, one a line: 32 random bytes in base64. The first one encrypts, all decrypt. Read again
            when it changes.

    Raises:
        SettingsError: The file cannot be read, or has no key or a wrong one.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._keys = ReloadingFile([file], lambda: _read_keys(file))
        self._valid_from: dict[str, int] = {}
        """The time from which the sessions of an owner are valid, in nanoseconds, for the last owners."""

    def open(self, token: str, owner: str) -> str:
        opened = self._end_before(owner, max(time.time_ns(), self._valid_from.get(owner, 0) + 1))
        sealed = self._keys.current().encrypt(json.dumps([owner, opened, token]).encode()).decode()
        if len(sealed) > MAX_SEALED_BYTES:
            return super().open(token, owner)
        self._end(self._ids.get(owner, ""))
        return sealed

    def token(self, session_id: str) -> str | None:
        found = self._unsealed(session_id)
        if found is None:
            return super().token(session_id)
        owner, opened, token = found
        return token if self._end_before(owner, opened) == opened else None

    def close(self, session_id: str) -> None:
        found = self._unsealed(session_id)
        if found is None:
            super().close(session_id)
        else:
            owner, opened, _ = found
            self._end_before(owner, opened + 1)

    def _end_before(self, owner: str, opened: int) -> int:
        """Ends the earlier sessions of an owner. Returns the time from which its sessions are valid."""
        begun = max(opened, self._valid_from.pop(owner, 0))
        self._valid_from[owner] = begun
        if len(self._valid_from) > MAX_SESSIONS:
            del self._valid_from[next(iter(self._valid_from))]
        return begun

    def _unsealed(self, session_id: str) -> tuple[str, int, str] | None:
        """The owner, the time and the token of a sealed session. None: it is none."""
        if len(session_id) > MAX_SEALED_BYTES:
            return None
        try:
            # Cookies are not always text.
            sealed = session_id.encode(errors="replace")
            owner, opened, token = json.loads(self._keys.current().decrypt(sealed, ttl=int(LIFETIME_SECONDS)))
        except (InvalidToken, ValueError, TypeError):  # the last two: of another version
            return None
        return owner, opened, token


def open_sessions(keys_file: Path | None) -> Sessions:
    """Sessions for one gateway, or for all that share a file of keys.

    Args:
        keys_file: The keys. None, or a file that does not exist: sessions are in the memory of this process.

    Raises:
        SettingsError: The file cannot be read, or has no key or a wrong one.
    """
    if keys_file is None:
        return Sessions()
    if not keys_file.exists():
        logger.warning("sessions of the console are in memory: %s does not exist", keys_file)
        return Sessions()
    return SealedSessions(keys_file)


def _read_keys(file: Path) -> MultiFernet:
    try:
        lines = file.read_text(encoding="ascii").split()
        keys = [base64.b64decode(line.replace("-", "+").replace("_", "/"), validate=True) for line in lines]
    except (OSError, UnicodeDecodeError, binascii.Error) as error:
        raise SettingsError(f"{file} cannot be read as keys in base64 ({type(error).__name__})") from None
    if not keys or any(len(key) != _KEY_BYTES for key in keys):
        raise SettingsError(f"{file} must have one or more keys of {_KEY_BYTES} bytes in base64, one a line")
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
