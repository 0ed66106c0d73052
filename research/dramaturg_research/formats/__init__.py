"""Readers of released formats."""
