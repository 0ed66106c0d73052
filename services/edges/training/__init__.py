"""Training of edge models."""
