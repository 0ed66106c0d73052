"""Writes material for evaluations."""
