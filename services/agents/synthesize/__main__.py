"""Starts the answer synthesize agent: ``python -m services.agents.synthesize``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.agents.synthesize.app import App

if __name__ == "__main__":
    run(App)
