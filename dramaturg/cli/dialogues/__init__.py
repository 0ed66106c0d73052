"""Simulated dialogues (SimulBench): rows of the released data, ratings and comparisons, and the tables."""
