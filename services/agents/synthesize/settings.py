"""Settings of the synthesize agent."""

from __future__ import annotations

from typing import ClassVar

from dramaturg.judge.settings import AgentSettings


class SynthesizeSettings(AgentSettings):
    """Section ``synthesize``."""

    section: ClassVar[str] = "synthesize"
