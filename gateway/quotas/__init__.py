"""Quotas of tenants: calls, runs and spending (docs/security.md)."""
