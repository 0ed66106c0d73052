"""The identity that the offline agents share."""

from __future__ import annotations

VERSION = "1.0.0"
"""Raised with every change of a rule or a threshold: results of two versions are not comparable."""

DESCRIPTION = "consensus-embedding, not an LLM judge"
"""Said wherever a verdict of theirs is shown."""
