"""The common identity of the offline agents."""

from __future__ import annotations

VERSION = "1.0.0"
"""The version. It changes with every rule or threshold: results of two versions are not comparable."""

DESCRIPTION = "consensus-embedding, not an LLM judge"
"""The description that accompanies every verdict."""
