"""Conversion between messages and domain types, by what the methods are about."""
