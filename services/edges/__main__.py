"""Starts the edge service: ``python -m services.edges``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.edges.app import App

if __name__ == "__main__":
    run(App)
