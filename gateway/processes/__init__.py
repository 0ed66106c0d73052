"""Processes with limits of memory and time, for work that must not hold up the gateway."""
