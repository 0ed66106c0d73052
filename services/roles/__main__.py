"""Starts the role service: ``python -m services.roles``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.roles.app import App

if __name__ == "__main__":
    run(App)
