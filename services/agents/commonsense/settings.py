"""Settings of the commonsense agent."""

from __future__ import annotations

from typing import ClassVar

from dramaturg.judge.settings import AgentSettings


class CommonsenseSettings(AgentSettings):
    """Section ``commonsense``."""

    section: ClassVar[str] = "commonsense"
