"""Settings of the execute agent."""

from __future__ import annotations

from typing import ClassVar

from dramaturg.judge.settings import AgentSettings


class ExecuteSettings(AgentSettings):
    """Section ``execute``."""

    section: ClassVar[str] = "execute"
