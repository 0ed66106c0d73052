"""Quotas: how much each tenant may ask, run and spend (docs/security.md)."""
