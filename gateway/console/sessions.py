"""Sessions of visitors that signed in with a bearer token."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

COOKIE = "dramaturg_session"
"""The name of the cookie with the id of a session."""
LIFETIME_SECONDS = 12 * 3600.0
"""The time after which a visitor signs in again."""
_MOST = 10_000


@dataclass(frozen=True)
class _Session:
    token: str
    expires: float


class Sessions:
    """The tokens of the visitors, in the memory of this process. A browser has only the id of its session."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def open(self, token: str) -> str:
        """Begins a session and returns its id. Above 10,000 sessions the oldest one ends."""
        if len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = _Session(token, time.monotonic() + LIFETIME_SECONDS)
        return session_id

    def token(self, session_id: str) -> str | None:
        """The token of a session; None: it does not exist or has expired."""
        session = self._sessions.get(session_id)
        if session is not None and session.expires <= time.monotonic():
            self.close(session_id)
            return None
        return None if session is None else session.token

    def close(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
