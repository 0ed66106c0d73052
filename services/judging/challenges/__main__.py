"""Starts the challenge judge: ``python -m services.judging.challenges``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.judging.challenges.app import App

if __name__ == "__main__":
    run(App)
