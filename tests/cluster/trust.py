"""A caller of the gateway: its token, and the Secret by which the gateway knows it."""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path


class Tokens:
    """A token of one tenant's evaluator.

    Attributes:
        secret: The file of the token.
        callers: What the Secret "callers" holds.
    """

    def __init__(self, folder: Path) -> None:
        token = secrets.token_urlsafe(32)
        self.secret = folder / "token"
        self.secret.write_text(token)
        entry = {
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "principal": "tester",
            "tenant": "testers",
            "roles": ["evaluator"],
        }
        self.callers = {"tokens.json": json.dumps({"tokens": [entry]})}
