"""Finds out who should judge a text: generates readers, and leaves out those that are alike (DRPE)."""
