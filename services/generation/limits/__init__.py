"""Limits of the calls to a provider: concurrency and rates."""
