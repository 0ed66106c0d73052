"""Finds the first too hard turn of a dialogue (SimulBench, section 2.4 and appendix B.3)."""
