"""Decides whether a call may be made."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.auth.authenticator import Authenticator, Metadata, for_tenant
from dramaturg.service.auth.caller import NOBODY, Caller, enter
from dramaturg.service.auth.permissions import OPEN, RULES, SERVE, permissions_of
from dramaturg.service.auth.refusal import UnrecognisedError
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context

logger = logging.getLogger(__name__)

REFLECTION = "/grpc.reflection."
"""How the names of reflection's methods begin, of which there are several versions."""


# Who makes the call that is being served, as its metadata says. None: the certificate has to say so.
_greeted: ContextVar[Caller | UnrecognisedError | None] = ContextVar("dramaturg_greeted", default=None)


class Guard:
    """Recognises the caller of each call, and refuses the one that may not make it.

    Args:
        authenticator: Recognises callers. ``None``: they are not told apart, and may do everything; also ask
            a service behind the gateway for any tenant.
        rules: What a caller of a method must be allowed, by the method's full name.
        reflection: What it takes to be told the contracts by reflection.
    """

    def __init__(
        self, authenticator: Authenticator | None, rules: Mapping[str, str], reflection: str = OPEN
    ) -> None:
        self._authenticator = authenticator
        self._rules = rules
        self._reflection = reflection

    def is_open(self, method: str) -> bool:
        """Whether everybody may call the method."""
        return self._authenticator is None or self._rule(method) == OPEN

    def greet(self, method: str, metadata: Metadata) -> bool:
        """Looks at what a call brings besides its message.

        A message of up to ``server.max_message_bytes`` is not worth reading for somebody unknown.

        Args:
            method: The full name of the method.
            metadata: That of the call, in whose task this is asked.

        Returns:
            Whether the caller may be somebody who is known. Where it is not, the call is to be refused.
        """
        if self._authenticator is None or self._rule(method) == OPEN:
            return True
        try:
            _greeted.set(self._authenticator.by_metadata(metadata))
        except UnrecognisedError as error:
            _greeted.set(error)
            return False
        return True

    def admit(self, method: str, context: Context, metadata: Metadata) -> None:
        """Enters the caller, for whoever works on the call.

        Args:
            method: The full name of the method.
            context: The call, in whose task this is asked.
            metadata: What the call brings.

        Raises:
            ServiceError: UNAUTHENTICATED, without a word on what was wrong; PERMISSION_DENIED; UNIMPLEMENTED
                for a method that is not served, to callers that are known.
        """
        rule = self._rule(method)
        if rule == OPEN:
            return
        try:
            caller = self._recognise(rule, context, metadata)
        except UnrecognisedError as error:
            logger.info("a caller was not recognised: %s", error, extra={"fields": {"method": method}})
            raise _unauthenticated() from None
        enter(caller)
        if self._authenticator is None:
            return
        if rule is None:
            raise NotImplementedError
        if rule not in permissions_of(caller.roles):
            raise _denied(method)

    def _recognise(self, rule: str | None, context: Context, metadata: Metadata) -> Caller:
        if self._authenticator is None:
            return for_tenant(NOBODY, metadata) if rule == SERVE else NOBODY
        greeted = _greeted.get()
        if isinstance(greeted, UnrecognisedError):
            raise greeted
        return greeted or self._authenticator.by_certificate(context)

    def _rule(self, method: str) -> str | None:
        return self._reflection if method.startswith(REFLECTION) else self._rules.get(method)


def guard(settings: AuthSettings | None, contracts: Iterable[Contract]) -> Guard:
    """The guard of a server.

    Args:
        settings: How callers are recognised. ``None``, or without a source of identities: not at all.
        contracts: What the server serves.

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
                raise SettingsError(f"{name} has no rule that says who may call it: see Contract.permission")
    if settings is None or not enabled:
        return Guard(None, rules)
    return Guard(Authenticator(settings), rules, settings.reflection_permission)


def _unauthenticated() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_UNAUTHENTICATED,
        "the caller is not known: a bearer token or a client certificate is needed",
    )


def _denied(method: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.PERMISSION_DENIED,
        error_reason_pb2.ERROR_REASON_PERMISSION_DENIED,
        f"the caller may not call {method}",
        metadata={"method": method},
    )
