"""Starts the embedding service: ``python -m services.embedding``."""

from __future__ import annotations

from dramaturg.service.server import run
from services.embedding.app import App

if __name__ == "__main__":
    run(App)
