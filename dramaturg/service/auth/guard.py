"""Authenticates callers by a bearer token or by the certificate of their connection, and authorizes them.

A bearer token is an entry of a file of tokens or a JSON Web Token (RFC 7519), which is checked with the keys
of a file (RFC 7517).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service import logs
from dramaturg.service.auth.caller import (
    ANONYMOUS,
    AUTHORIZATION_METADATA,
    TENANT_METADATA,
    TENANT_PATTERN,
    Caller,
    enter,
)
from dramaturg.service.auth.settings import (
    OPEN,
    ROLES,
    RULES,
    SERVE,
    SERVICE,
    AuthSettings,
    Grant,
    IdentityGrant,
    permissions_of,
)
from dramaturg.service.context import Context, Metadata
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import SettingsError, explain

if TYPE_CHECKING:
    from pathlib import Path

    from jwt import PyJWK


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


MOST_TOKENS = 1000
"""The maximum number of tokens in a file: each token is compared with all. Use JWTs for more callers."""


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
        self._keys = ReloadingFile([file], lambda: _load_keys(file, settings.jwt_algorithms))

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


def _load_keys(file: Path, algorithms: Sequence[str]) -> Sequence[PyJWK]:
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
        self._entries = ReloadingFile([file], lambda: _load_entries(file))

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


def _load_entries(file: Path) -> Sequence[tuple[bytes, TokenEntry]]:
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


_LONGEST_TOKEN = 8192
_WEB_TOKEN_DOTS = 2
_TENANT = re.compile(TENANT_PATTERN)


class Authenticator:
    """Authenticates callers.

    A token alone authenticates a caller that brings one: a valid certificate does not make up for a wrong
    token.

    Raises:
        SettingsError: A file cannot be read.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._identities = Identities(settings.identities)
        self._takes_certificates = bool(settings.identities)
        self._tokens = StaticTokens(settings.tokens_file) if settings.tokens_file else None
        self._web_tokens = (
            WebTokens(settings.jwks_file, settings, self._identities) if settings.jwks_file else None
        )

    def by_metadata(self, metadata: Metadata) -> Caller | None:
        """The caller by its metadata alone; ``None`` where the certificate identifies it.

        Raises:
            UnauthenticatedError: The credentials are missing or wrong.
        """
        given = _all(metadata, AUTHORIZATION_METADATA)
        if given:
            return _with_tenant(self._bearer(given), metadata)
        if self._takes_certificates:
            return None
        raise UnauthenticatedError("there is no token")

    def by_certificate(self, context: Context) -> Caller:
        """The caller by the certificate of its connection.

        Raises:
            UnauthenticatedError: The credentials are missing or wrong.
        """
        caller = self._identities.find(_spiffe_id(context.auth_context()))
        return _with_tenant(caller, context.invocation_metadata() or ())

    def _bearer(self, given: list[str]) -> Caller:
        scheme, _, token = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer" or not 0 < len(token) <= _LONGEST_TOKEN:
            raise UnauthenticatedError("the authorization is no bearer token")
        caller = self._tokens.find(token) if self._tokens is not None else None
        if caller is not None:
            return caller
        if self._web_tokens is not None and token.count(".") == _WEB_TOKEN_DOTS:
            return self._web_tokens.find(token)
        raise UnauthenticatedError("the token is unknown")


def for_tenant(caller: Caller, metadata: Metadata) -> Caller:
    """The caller, for the tenant that its metadata names.

    Raises:
        UnauthenticatedError: The name is no valid one.
    """
    if TENANT_METADATA not in dict(metadata):
        return caller
    named = _all(metadata, TENANT_METADATA)
    if len(named) != 1 or not _TENANT.fullmatch(named[0]):
        raise UnauthenticatedError(f"{caller.principal or 'a caller'} names a tenant that is no valid name")
    return replace(caller, tenant=named[0])


def _with_tenant(caller: Caller, metadata: Metadata) -> Caller:
    """The caller; a service is given the tenant that it names."""
    return for_tenant(caller, metadata) if SERVICE in caller.roles else caller


def _all(metadata: Metadata, name: str) -> list[str]:
    return [value for key, value in metadata if key == name and isinstance(value, str)]


def _spiffe_id(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """The SPIFFE id of the client's certificate, whose chain gRPC has verified by then."""
    found = list(auth_context.get("peer_spiffe_id", ()))
    if len(found) != 1:
        raise UnauthenticatedError("there is neither a token nor a certificate with a SPIFFE id")
    return found[0].decode("utf-8", errors="replace")


logger = logging.getLogger(__name__)
logs.RateLimit(logger)

REFLECTION = "/grpc.reflection."
"""The prefix of the names of reflection's methods, which exist in several versions."""


# The caller of the call being served, by its metadata. None: the certificate identifies it. It is a context
# variable: gRPC has no other way from an interceptor, which sees the metadata before the request is read, to
# the handler of the same call.
_authenticated: ContextVar[Caller | UnauthenticatedError | None] = ContextVar(
    "dramaturg_authenticated", default=None
)


class Guard:
    """Authenticates the caller of each call, and refuses the one that lacks the permission.

    Args:
        authenticator: Authenticates callers. ``None``: callers are not authenticated and may call every
            method, also for any tenant.
        rules: The permission that a method needs, by the method's full name.
        reflection: The permission that reflection needs.
    """

    def __init__(
        self, authenticator: Authenticator | None, rules: Mapping[str, str], reflection: str = OPEN
    ) -> None:
        self._authenticator = authenticator
        self._rules = rules
        self._reflection = reflection

    def knows(self, method: str) -> bool:
        """Whether the method is one of a contract, or of reflection."""
        return self._rule(method) is not None

    def is_open(self, method: str) -> bool:
        """Whether the method is open to all callers."""
        return self._authenticator is None or self._rule(method) == OPEN

    def authenticate(self, method: str, metadata: Metadata) -> bool:
        """Checks the credentials in the metadata of a call before its request is read.

        A request may have up to ``server.max_message_bytes``: it is not read for an unknown caller.

        Args:
            method: The full name of the method.
            metadata: The metadata of the call, in whose task this runs.

        Returns:
            False where the credentials are invalid; [authorize] then refuses the call.
        """
        if self._authenticator is None or self._rule(method) == OPEN:
            return True
        try:
            _authenticated.set(self._authenticator.by_metadata(metadata))
        except UnauthenticatedError as error:
            _authenticated.set(error)
            return False
        return True

    def tenant_of_token(self) -> str | None:
        """The tenant of the caller that [authenticate] found. None: the certificate identifies it."""
        caller = _authenticated.get()
        return caller.tenant if isinstance(caller, Caller) else None

    def find_caller(self, metadata: Metadata) -> Caller | None:
        """The caller whose credentials are in the metadata of a call. None: they are missing or invalid."""
        if self._authenticator is None:
            return ANONYMOUS
        try:
            return self._authenticator.by_metadata(metadata)
        except UnauthenticatedError:
            return None

    def authorize(self, method: str, context: Context, metadata: Metadata) -> None:
        """Authenticates the caller and sets it for all code that serves the call.

        Args:
            method: The full name of the method.
            context: The call, in whose task this runs.
            metadata: The metadata of the call.

        Raises:
            ServiceError: UNAUTHENTICATED, without the cause; PERMISSION_DENIED; UNIMPLEMENTED for a method
                that is not served, to authenticated callers.
        """
        rule = self._rule(method)
        if rule == OPEN:
            return
        try:
            caller = self._caller(rule, context, metadata)
        except UnauthenticatedError as error:
            logger.info("a caller was not authenticated: %s", error, extra={"fields": {"method": method}})
            raise _unauthenticated() from None
        enter(caller)
        if self._authenticator is None:
            return
        if rule is None:
            raise NotImplementedError
        if rule not in permissions_of(caller.roles):
            raise _denied(method)

    def _caller(self, rule: str | None, context: Context, metadata: Metadata) -> Caller:
        if self._authenticator is None:
            return for_tenant(ANONYMOUS, metadata) if rule == SERVE else ANONYMOUS
        authenticated = _authenticated.get()
        if isinstance(authenticated, UnauthenticatedError):
            raise authenticated
        return authenticated or self._authenticator.by_certificate(context)

    def _rule(self, method: str) -> str | None:
        return self._reflection if method.startswith(REFLECTION) else self._rules.get(method)


def guard(settings: AuthSettings | None, contracts: Iterable[Contract]) -> Guard:
    """The guard of a server.

    Args:
        settings: Settings of authentication. ``None`` or without a source of identities: callers are not
            authenticated.
        contracts: The contracts of the server.

    Raises:
        SettingsError: A file cannot be read, or a method that is served has no rule.
    """
    enabled = settings is not None and settings.enabled
    rules = dict(RULES)
    for contract in contracts:
        for method in contract.descriptor.methods:
            name = f"/{contract.full_name}/{method.name}"
            if contract.permission:
                rules[name] = contract.permission
            elif enabled and name not in rules:
                raise SettingsError(f"{name} needs a permission: see Contract.permission")
    if settings is None or not enabled:
        return Guard(None, rules)
    return Guard(Authenticator(settings), rules, settings.reflection_permission)


def _unauthenticated() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_UNAUTHENTICATED,
        "the caller is not authenticated: a bearer token or a client certificate is needed",
    )


def _denied(method: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
        f"the caller may not call {method}",
        metadata={"method": method},
    )
