"""Writes what is then judged."""
