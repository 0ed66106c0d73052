"""Finds where a dialogue becomes too hard for the simulator (SimulBench, section 2.4 and appendix B.3)."""
