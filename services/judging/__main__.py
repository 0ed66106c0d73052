"""Starts the single judge: ``python -m services.judging``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.judging.app import App

if __name__ == "__main__":
    run(App)
