"""The errors of the run store. The module imports no SQLAlchemy, see ``dramaturg.database``."""

from __future__ import annotations

from collections.abc import Sequence


class RequestIdReusedError(ValueError):
    """A request id was used before with another spec."""


class DatasetOffsetError(ValueError):
    """Bytes do not follow those received.

    Args:
        received: The number of bytes received.
    """

    def __init__(self, received: int) -> None:
        super().__init__(f"{received} bytes are received")
        self.received = received


class DatasetQuotaError(ValueError):
    """The datasets of a tenant would exceed its quota."""


class JudgeInUseError(ValueError):
    """Registered judges need a judge.

    Args:
        panels: The names of the panels that it is a member of.
        shadows: The names of its shadows.
    """

    def __init__(self, panels: Sequence[str], shadows: Sequence[str]) -> None:
        super().__init__(f"panels {panels} and shadows {shadows} use the judge")
        self.panels = panels
        self.shadows = shadows


class JudgeMissingError(ValueError):
    """A judge that a registration needs is not registered.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"the judge {name!r} is not registered")
        self.name = name
