"""Judges a script by carrying it out in mind (ABSEval, section 3.2)."""
