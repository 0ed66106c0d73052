"""Walks through a script as one who carries it out (ABSEval, section 3.2)."""
