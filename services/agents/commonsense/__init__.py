"""Judges whether every step agrees with common sense (ABSEval, section 3.2)."""
