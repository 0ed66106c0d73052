"""Evaluation of what language models write, as swappable gRPC services.

The names below are imported when they are first used, so that ``import dramaturg`` is cheap:

- ``evaluate_scripts``, ``evaluate_texts``, ``evaluate_pair``: evaluations of plain values in one call, and
  ``evaluate_scripts_async``, ``evaluate_texts_async``, ``evaluate_pair_async`` (``dramaturg.evaluation``).
- ``Evaluation``, ``CandidateVerdicts``, ``Verdict``, ``Finding``, ``PairEvaluation``, ``Comparison``: their
  results.
- ``DramaturgClient``: the client of a gateway (``dramaturg.client``).
- ``ServiceError``: the error that its methods raise (``dramaturg.service.errors``).
- ``ChannelSettings``: TLS files and limits of a connection (``dramaturg.service.settings``).

Other public packages: ``dramaturg.api`` (messages and stubs), ``dramaturg.judge`` (the SDK for judges),
``dramaturg.service`` (servers and channels), ``dramaturg.conformance`` (checks of a running judge) and
``dramaturg.testing`` (fakes for tests).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dramaturg.client import DramaturgClient
    from dramaturg.evaluation import (
        CandidateVerdicts,
        Comparison,
        Evaluation,
        Finding,
        PairEvaluation,
        Verdict,
        evaluate_pair,
        evaluate_pair_async,
        evaluate_scripts,
        evaluate_scripts_async,
        evaluate_texts,
        evaluate_texts_async,
    )
    from dramaturg.service.errors import ServiceError
    from dramaturg.service.settings import ChannelSettings

__all__ = [
    "CandidateVerdicts",
    "ChannelSettings",
    "Comparison",
    "DramaturgClient",
    "Evaluation",
    "Finding",
    "PairEvaluation",
    "ServiceError",
    "Verdict",
    "evaluate_pair",
    "evaluate_pair_async",
    "evaluate_scripts",
    "evaluate_scripts_async",
    "evaluate_texts",
    "evaluate_texts_async",
]

# Must be set before gRPC is first imported. Nothing here forks after gRPC has started - worker processes are
# spawned - and gRPC's fork handlers would only print warnings about the fork that spawning begins with.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_MODULES = {
    "CandidateVerdicts": "dramaturg.evaluation",
    "ChannelSettings": "dramaturg.service.settings",
    "Comparison": "dramaturg.evaluation",
    "DramaturgClient": "dramaturg.client",
    "Evaluation": "dramaturg.evaluation",
    "Finding": "dramaturg.evaluation",
    "PairEvaluation": "dramaturg.evaluation",
    "ServiceError": "dramaturg.service.errors",
    "Verdict": "dramaturg.evaluation",
    "evaluate_pair": "dramaturg.evaluation",
    "evaluate_pair_async": "dramaturg.evaluation",
    "evaluate_scripts": "dramaturg.evaluation",
    "evaluate_scripts_async": "dramaturg.evaluation",
    "evaluate_texts": "dramaturg.evaluation",
    "evaluate_texts_async": "dramaturg.evaluation",
}


def __getattr__(name: str) -> Any:
    """Imports a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
