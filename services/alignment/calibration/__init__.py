"""How far confidences can be taken at their word, and from which on answers are good enough."""
