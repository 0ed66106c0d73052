"""Conversion between messages and domain types, one module for each method."""
