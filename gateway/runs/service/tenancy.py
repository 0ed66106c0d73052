"""Whose runs a call is about."""

from __future__ import annotations

from dramaturg.service.auth.caller import tenant_of

__all__ = ["tenant_of"]
