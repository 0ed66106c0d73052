"""Starts the critic agent: ``python -m services.agents.critic``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.agents.critic.app import App

if __name__ == "__main__":
    run(App)
