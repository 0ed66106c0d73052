"""Settings of the critic agent."""

from __future__ import annotations

from typing import ClassVar

from dramaturg.judge.settings import AgentSettings


class CriticSettings(AgentSettings):
    """Section ``critic``."""

    section: ClassVar[str] = "critic"
