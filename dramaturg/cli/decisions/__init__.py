"""Decisions (Choice-75): rows of the released data, what models chose, and the tables of it."""
