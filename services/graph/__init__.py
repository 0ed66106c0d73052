"""Script graphs: reading, checking and measuring partial orders of events (proScript)."""
