"""Starts the rubric judge: ``python -m services.judging.rubrics``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.judging.rubrics.app import App

if __name__ == "__main__":
    run(App)
