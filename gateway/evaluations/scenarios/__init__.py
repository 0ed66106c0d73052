"""Scenario writing (Choice-75, section 2.4): scenarios of decisions, near-duplicates and leaked options."""
