"""Simulated dialogues (SimulBench): held, cut into test scripts, continued, rated and compared."""
