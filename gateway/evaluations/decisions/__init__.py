"""Decisions (Choice-75): models choose an option."""
