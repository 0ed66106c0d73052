"""Dialogues (SimulBench): test scripts that models continue, whose replies are rated and compared."""
