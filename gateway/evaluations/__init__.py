"""Evaluations: the calls of each kind, and the result made of their answers."""
