"""The review of written scenarios by people (Choice-75, section 2.4)."""
