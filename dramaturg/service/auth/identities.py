"""The callers that SPIFFE ids identify, and the error of a caller without an identity."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dramaturg.service.auth.caller import TENANT_PATTERN, Caller
from dramaturg.service.auth.settings import IdentityGrant


class UnauthenticatedError(Exception):
    """The credentials are missing or invalid. The message contains no part of them."""


_HOLES = {"*": "[^/:]+", "{tenant}": f"(?P<tenant>{TENANT_PATTERN})"}


class Identities:
    """Finds the caller with an identity: the first pattern that matches it as a whole counts."""

    def __init__(self, grants: Sequence[IdentityGrant]) -> None:
        self._grants = [(_compiled(grant.pattern), grant) for grant in grants]

    def find(self, identity: str) -> Caller:
        """The caller with the identity.

        Raises:
            UnauthenticatedError: No pattern matches it.
        """
        for pattern, grant in self._grants:
            if found := pattern.fullmatch(identity):
                tenant = found.groupdict().get("tenant") or grant.tenant
                return Caller(identity, tenant, frozenset(grant.roles))
        raise UnauthenticatedError(f"no pattern of auth.identities matches {identity[:200]!r}")


def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*|\{tenant\})", pattern)
    return re.compile("".join(_HOLES.get(part) or re.escape(part) for part in parts))
