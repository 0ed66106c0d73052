"""Registered judges: channels, identities, health, selection and limits of calls."""
