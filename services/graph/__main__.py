"""Starts the graph service."""

from dramaturg.service.server import run
from services.graph.app import App

run(App)
