"""The rule judge."""
