"""Starts the rating judge: ``python -m services.judging.ratings``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.judging.ratings.app import App

if __name__ == "__main__":
    run(App)
