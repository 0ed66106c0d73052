"""Quotas of tenants: calls, runs and spending (docs/operate/security.md)."""
