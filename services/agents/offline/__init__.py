"""Common parts of the agents without a language model: identity, consensus, embedding similarity.

They abstain from criteria that these methods cannot decide. ``bench/offline_screen.py`` measures their
accuracy.
"""

from __future__ import annotations

VERSION = "1.0.0"
"""The version. It changes with every rule or threshold: results of two versions are not comparable."""

DESCRIPTION = "consensus-embedding, not an LLM judge"
"""The description that accompanies every verdict."""
