"""Sessions of visitors that signed in with a bearer token."""

from __future__ import annotations

import base64
import binascii
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
MAX_SESSIONS_OF_OWNER = 100
"""The most sessions in memory of one visitor."""
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

    Args:
        most: The most sessions. Above it ends the oldest one of the owner with the most sessions, so that no
            owner can end the sessions of one that has fewer.
    """

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self._sessions: dict[str, _Session] = {}
        self._of_owner: dict[str, dict[str, None]] = {}
        """The ids of the sessions of each owner, the oldest first."""

    def open(self, token: str, owner: str) -> str:
        """Begins a session and returns its id.

        Args:
            token: The visitor's token.
            owner: The visitor. Above ``MAX_SESSIONS_OF_OWNER`` sessions its oldest one ends.
        """
        own = self._of_owner.get(owner, {})
        if len(own) >= MAX_SESSIONS_OF_OWNER:
            self.close(next(iter(own)))
        elif len(self._sessions) >= self._most:
            largest = max(self._of_owner.values(), key=len)
            self.close(next(iter(own if len(own) >= len(largest) else largest)))
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = _Session(token, owner, time.monotonic() + LIFETIME_SECONDS)
        self._of_owner.setdefault(owner, {})[session_id] = None
        return session_id

    def token(self, session_id: str) -> str | None:
        """The token of a session; None: it does not exist or has expired."""
        session = self._sessions.get(session_id)
        if session is not None and session.expires <= time.monotonic():
            self.close(session_id)
            return None
        return None if session is None else session.token

    def close(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        own = self._of_owner[session.owner]
        del own[session_id]
        if not own:
            del self._of_owner[session.owner]


class SealedSessions(Sessions):
    """The tokens of the visitors, encrypted in their cookies with keys that several gateways share.

    Every gateway with the key of a session knows it. A session ends after ``LIFETIME_SECONDS``, with its
    token, or with its key; a sign-out deletes the cookie and does not end copies of it. A token whose sealed
    form is longer than ``MAX_SEALED_BYTES`` stays in the memory of this process.

    Args:
        file: The keys, one a line: 32 random bytes in base64. The first one encrypts, all decrypt. Read again
            when it changes.

    Raises:
        SettingsError: The file cannot be read, or has no key or a wrong one.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._keys = ReloadingFile([file], lambda: _read_keys(file))

    def open(self, token: str, owner: str) -> str:
        sealed = self._keys.current().encrypt(token.encode()).decode()
        return sealed if len(sealed) <= MAX_SEALED_BYTES else super().open(token, owner)

    def token(self, session_id: str) -> str | None:
        if len(session_id) > MAX_SEALED_BYTES:
            return None
        try:
            # Cookies are not always text.
            sealed = session_id.encode(errors="replace")
            return self._keys.current().decrypt(sealed, ttl=int(LIFETIME_SECONDS)).decode()
        except InvalidToken:
            return super().token(session_id)


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
