"""Starts services: one alone, or all of them in one process."""
