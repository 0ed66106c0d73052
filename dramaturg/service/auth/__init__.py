"""Who calls, and what they may do: authentication, roles, tenants, and the audit log (docs/security.md)."""
