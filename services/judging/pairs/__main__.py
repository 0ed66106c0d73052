"""Starts the judge of pairs: ``python -m services.judging.pairs``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.judging.pairs.app import App

if __name__ == "__main__":
    run(App)
