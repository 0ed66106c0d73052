"""The parts of RunService."""
