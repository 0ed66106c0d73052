"""Starts the generation service: ``python -m services.generation``."""

from dramaturg.service.server import run
from services.generation.app import App

if __name__ == "__main__":
    run(App)
