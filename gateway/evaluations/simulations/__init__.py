"""Simulations (SimulBench): dialogues of a user agent with a simulator, cut into test scripts."""
