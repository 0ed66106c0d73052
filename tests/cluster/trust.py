"""Who may call whom, where the manifests do not say so: the gateway's callers by a token, services by the
SPIFFE ids of their certificates.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path

from tests.k8s.rendered import Pod

GATEWAY = "gateway"


class Tokens:
    """A token of one tenant's evaluator.

    Attributes:
        secret: The file of the token.
    """

    def __init__(self, folder: Path) -> None:
        token = secrets.token_urlsafe(32)
        self.secret, self._known = folder / "token", folder / "tokens.json"
        self.secret.write_text(token)
        entry = {
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "principal": "tester",
            "tenant": "testers",
            "roles": ["evaluator"],
        }
        self._known.write_text(json.dumps({"tokens": [entry]}))

    def of_pod(self, pod: Pod, namespace: str) -> dict[str, str]:
        """The variables by which a pod knows its callers; none where its manifest has some."""
        if any(entry["name"].startswith("DRAMATURG_AUTH_") for entry in pod.container.get("env", [])):
            return {}
        if pod.name == GATEWAY:
            return {"DRAMATURG_AUTH_TOKENS_FILE": str(self._known)}
        pattern = f"spiffe://cluster.local/ns/{namespace}/sa/*"
        return {"DRAMATURG_AUTH_IDENTITIES": json.dumps([{"pattern": pattern, "roles": ["service"]}])}
