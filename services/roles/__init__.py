"""The role service: generates readers of a text and removes similar ones (DRPE)."""
