"""Starts the gateway: ``python -m gateway``."""

from __future__ import annotations

from dramaturg.service.server import run
from gateway.app import App

if __name__ == "__main__":
    run(App)
