"""Compares a script with a reference (ABSEval, section 3.2)."""
