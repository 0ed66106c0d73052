"""Authentication, authorization, tenants and the audit log (docs/operate/security.md)."""
