"""Authenticates and authorizes the callers of a server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextvars import ContextVar

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service import logs
from dramaturg.service.auth.authenticator import Authenticator, for_tenant
from dramaturg.service.auth.caller import ANONYMOUS, Caller, enter
from dramaturg.service.auth.identities import UnauthenticatedError
from dramaturg.service.auth.permissions import OPEN, RULES, SERVE, permissions_of
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.rpc import Context, Metadata
from dramaturg.service.settings import SettingsError

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
