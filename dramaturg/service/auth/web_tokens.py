"""JSON Web Tokens (RFC 7519), checked with the keys of a file (RFC 7517)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dramaturg.service.auth.caller import TENANT_PATTERN, Caller
from dramaturg.service.auth.identities import Identities, UnauthenticatedError
from dramaturg.service.auth.permissions import ROLES, SERVICE
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from jwt import PyJWK

_SHORTEST_RSA_BITS = 2048
_LONGEST_PRINCIPAL = 2048


class WebTokens:
    """Authenticates callers by JWTs.

    A token must be signed by a key of the file with an allowed algorithm, name the issuer and the audience,
    and have a claim ``exp`` that has not passed.

    Raises:
        SettingsError: The keys cannot be read, or PyJWT is not installed.
    """

    def __init__(self, file: Path, settings: AuthSettings, identities: Identities) -> None:
        try:
            import jwt
        except ImportError as error:
            raise SettingsError("auth.jwks_file needs PyJWT: install dramaturg[platform]") from error
        self._jwt = jwt
        self._settings = settings
        self._identities = identities
        self._keys = ReloadingFile([file], lambda: _load(file, settings.jwt_algorithms))

    def find(self, token: str) -> Caller:
        """The caller with the token.

        Raises:
            UnauthenticatedError: The token is invalid.
        """
        try:
            claims = self._claims(token)
        except self._jwt.PyJWTError as error:
            # Only the class: some messages contain claims of the token.
            raise UnauthenticatedError(f"a JWT was refused: {type(error).__name__}") from None
        return self._caller(claims)

    def _claims(self, token: str) -> Mapping[str, Any]:
        header = self._jwt.get_unverified_header(token)
        needed = ["exp", "iss", "aud", self._settings.jwt_principal_claim]
        return self._jwt.decode(
            token,
            self._key(header.get("kid"), header.get("alg")),
            algorithms=list(self._settings.jwt_algorithms),
            issuer=self._settings.jwt_issuer,
            audience=self._settings.jwt_audience,
            leeway=self._settings.jwt_leeway_seconds,
            options={"require": needed},
        )

    def _key(self, key_id: object, algorithm: object) -> PyJWK:
        fitting = [key for key in self._keys.current() if key.algorithm_name == algorithm]
        if key_id is not None:
            fitting = [key for key in fitting if key.key_id == key_id]
        if len(fitting) != 1:
            raise UnauthenticatedError(f"a JWT was refused: {len(fitting)} keys fit it")
        return fitting[0]

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        principal = claims[self._settings.jwt_principal_claim]
        if not isinstance(principal, str) or not 0 < len(principal) <= _LONGEST_PRINCIPAL:
            raise UnauthenticatedError("a JWT was refused: its principal is no name")
        if self._settings.jwt_roles_claim not in claims:
            return self._identities.find(principal)
        roles = frozenset(_words(claims[self._settings.jwt_roles_claim])) & ROLES.keys()
        tenant = claims.get(self._settings.jwt_tenant_claim, "")
        if not isinstance(tenant, str) or (tenant and not re.fullmatch(TENANT_PATTERN, tenant)):
            raise UnauthenticatedError("a JWT was refused: its tenant is no name")
        if not tenant and not roles <= {SERVICE}:
            raise UnauthenticatedError("a JWT was refused: it names no tenant")
        return Caller(principal, tenant, roles)


def _words(claim: object) -> Sequence[str]:
    """The roles as a list, or as words in one text, as ``scope`` has them (RFC 8693, section 4.2)."""
    if isinstance(claim, str):
        return claim.split()
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []


def _load(file: Path, algorithms: Sequence[str]) -> Sequence[PyJWK]:
    """The keys that can sign with an algorithm that is allowed; others are left out, as RFC 7517 says."""
    from jwt import PyJWK, PyJWTError

    try:
        entries = json.loads(read(file))["keys"]
        keys = [PyJWK(entry) for entry in entries if entry.get("kty") != "oct" and entry.get("use") != "enc"]
    except (ValueError, KeyError, TypeError, AttributeError, PyJWTError) as error:
        raise SettingsError(f"{file} is no set of JSON Web Keys ({type(error).__name__})") from None
    usable = [key for key in keys if key.algorithm_name in algorithms]
    if not usable:
        raise SettingsError(f"{file} has no key for {', '.join(algorithms)}")
    for key in usable:
        if key.key_type == "RSA" and key.key.key_size < _SHORTEST_RSA_BITS:
            raise SettingsError(f"{file}: an RSA key has less than {_SHORTEST_RSA_BITS} bits")
        if hasattr(key.key, "private_numbers") or hasattr(key.key, "private_bytes"):
            raise SettingsError(f"{file} holds a private key; only the public part belongs there")
    return usable
