"""The audit log: calls that change or cost something, those that were refused, and sign-ins to the console.

One JSON object a line: time, principal, tenant, peer, method, run id, judge, outcome, reason, request id.
Neither requests nor credentials are in it. Of the refused callers without an identity,
``logs.REFUSALS_A_SECOND`` have a line, and the others are counted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from logging.handlers import WatchedFileHandler

import grpc

from dramaturg.service import logs
from dramaturg.service.auth.caller import Caller, current
from dramaturg.service.auth.settings import JUDGES_READ, OPEN, RULES, RUNS_READ
from dramaturg.service.settings import SettingsError

logger = logging.getLogger("dramaturg.audit")
# Nothing is written before [configure].
logger.disabled = True
logger.propagate = False

STANDARD_OUTPUT = "stdout"
"""The destination that is no file."""

_LONGEST_RUN_ID = 100
_LONGEST_JUDGE = 201
_HARMLESS = frozenset({RUNS_READ, JUDGES_READ, OPEN})
_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED.name, grpc.StatusCode.PERMISSION_DENIED.name})


def _is_unidentified(record: logging.LogRecord) -> bool:
    fields = getattr(record, "fields", {})
    return fields.get("outcome") in _REFUSED and not fields.get("principal")


logs.RateLimit(logger, _is_unidentified)


def configure(place: str) -> None:
    """Sets the destination of the audit log.

    Args:
        place: "stdout", or a file, which is opened again after it was moved away. Empty: none.

    Raises:
        SettingsError: The file cannot be written to.
    """
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.disabled = True
    if not place:
        return
    try:
        handler = logging.StreamHandler(sys.stdout) if place == STANDARD_OUTPUT else WatchedFileHandler(place)
    except OSError as error:
        raise SettingsError(f"auth.audit: {place} cannot be written to: {error.strerror}") from error
    handler.setFormatter(logs.JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.disabled = False


def is_enabled() -> bool:
    """Whether there is an audit log."""
    return not logger.disabled


def is_kept(method: str) -> bool:
    """Whether calls of a method are logged that are not refused: it changes or costs something."""
    return not logger.disabled and RULES.get(method) not in _HARMLESS


def write(
    call: Mapping[str, object], run_id: str = "", judge: str = "", caller: Caller | None = None
) -> None:
    """Writes a line about a call that has ended.

    Args:
        call: The fields of the access log.
        run_id: The run of the call. Empty: none.
        judge: The role and name of the judge that the call changes. Empty: none.
        caller: The caller. None: that of the current call.
    """
    if logger.disabled or not (call["code"] in _REFUSED or is_kept(str(call["method"]))):
        return
    caller = caller or current()
    fields = {
        "principal": caller.principal,
        "tenant": caller.tenant,
        "peer": call["peer"],
        "method": call["method"],
        "run_id": run_id[:_LONGEST_RUN_ID],
        "judge": judge[:_LONGEST_JUDGE],
        "outcome": call["code"],
        "reason": call["reason"],
        "request_id": call["request_id"],
    }
    logs.write(logger, logging.INFO, "audit", fields)
