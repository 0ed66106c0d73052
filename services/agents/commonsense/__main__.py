"""Starts the commonsense agent: ``python -m services.agents.commonsense``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.agents.commonsense.app import App

if __name__ == "__main__":
    run(App)
