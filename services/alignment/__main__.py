"""Starts the alignment service."""

from __future__ import annotations

from dramaturg.service.server import run
from services.alignment.app import App

if __name__ == "__main__":
    run(App)
