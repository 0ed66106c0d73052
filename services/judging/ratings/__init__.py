"""Rates a response in a simulation on a scale (SimulBench, section 2.5 and appendix B.4)."""
