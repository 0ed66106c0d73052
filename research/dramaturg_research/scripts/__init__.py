"""Scripts of the models under test, and labels of people on them (ABSEval, sections 4.1 and 4.3)."""
