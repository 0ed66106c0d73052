"""Starts the execute agent: ``python -m services.agents.execute``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.agents.execute.app import App

if __name__ == "__main__":
    run(App)
