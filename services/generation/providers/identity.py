"""Tokens of cloud identities, renewed before they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Literal

from services.generation.errors import FailureKind, ProviderError
from services.generation.providers.key_filter import KeyFilter

RENEW_SECONDS = 300.0
"""How long before its end a token is renewed."""

_SCOPES = {
    "azure": "https://cognitiveservices.azure.com/.default",
    "google": "https://www.googleapis.com/auth/cloud-platform",
}


class CloudIdentity:
    """The identity of the process in a cloud: of a workload, of a machine, or of a developer's login."""

    def __init__(self, name: str, cloud: Literal["azure", "google"], scope: str, keys: KeyFilter) -> None:
        """Finds the package.

        Args:
            name: The provider's name.
            cloud: The cloud.
            scope: The scope of tokens. Empty: that of its model services.
            keys: Learns the tokens.

        Raises:
            ImportError: the package is not installed.
        """
        self._name = name
        self._fetch: Callable[[], tuple[str, float]]
        self._fetch = (_azure if cloud == "azure" else _google)(scope or _SCOPES[cloud])
        self._keys = keys
        self._lock = asyncio.Lock()
        self._token = ""
        self._ends = 0.0

    async def headers(self) -> Mapping[str, str]:
        """The header with a token that is valid.

        Raises:
            ProviderError: there is none.
        """
        if time.time() > self._ends - RENEW_SECONDS:
            async with self._lock:
                if time.time() > self._ends - RENEW_SECONDS:
                    await self._renew()
        return {"Authorization": f"Bearer {self._token}"}

    async def _renew(self) -> None:
        try:
            token, ends = await asyncio.to_thread(self._fetch)
        except Exception as error:
            if time.time() < self._ends:
                return
            message = f"no token of the cloud identity: {self._keys.text(str(error))[:500]}"
            raise ProviderError(FailureKind.UNAUTHENTICATED, self._name, message, settled=True) from None
        self._keys.add(token)
        self._token, self._ends = token, ends


def _azure(scope: str) -> Callable[[], tuple[str, float]]:
    from azure.identity import DefaultAzureCredential

    credential = DefaultAzureCredential()

    def fetch() -> tuple[str, float]:
        token = credential.get_token(scope)
        return token.token, float(token.expires_on)

    return fetch


def _google(scope: str) -> Callable[[], tuple[str, float]]:
    import google.auth
    from google.auth.transport.requests import Request

    def fetch() -> tuple[str, float]:
        credentials, _ = google.auth.default(scopes=[scope])
        credentials.refresh(Request())
        ends = credentials.expiry
        # An hour where the credentials do not say.
        return credentials.token, time.time() + 3600 if ends is None else ends.replace(tzinfo=UTC).timestamp()

    return fetch
