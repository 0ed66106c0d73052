"""Authentication, authorization, tenants and the audit log (docs/security.md)."""
