"""Sessions of visitors that signed in with a bearer token."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

COOKIE = "dramaturg_session"
"""The name of the cookie with the id of a session."""
LIFETIME_SECONDS = 12 * 3600.0
"""The time after which a visitor signs in again."""
MAX_SESSIONS = 10_000
"""The most sessions."""
MAX_SESSIONS_OF_TOKEN = 100
"""The most sessions of one token."""


@dataclass(frozen=True)
class _Session:
    token: str
    expires: float


class Sessions:
    """The tokens of the visitors, in the memory of this process. A browser has only the id of its session."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._of_token: dict[str, dict[str, None]] = {}
        """The ids of the sessions of each token, the oldest first."""

    def open(self, token: str) -> str:
        """Begins a session and returns its id.

        Above 100 sessions of a token its oldest one ends, and above 10,000 sessions the oldest of all.
        """
        own = self._of_token.setdefault(token, {})
        if len(own) >= MAX_SESSIONS_OF_TOKEN:
            self.close(next(iter(own)))
        elif len(self._sessions) >= MAX_SESSIONS:
            self.close(next(iter(self._sessions)))
        session_id = secrets.token_urlsafe(32)
        self._sessions[session_id] = _Session(token, time.monotonic() + LIFETIME_SECONDS)
        self._of_token.setdefault(token, {})[session_id] = None
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
        own = self._of_token[session.token]
        del own[session_id]
        if not own:
            del self._of_token[session.token]
