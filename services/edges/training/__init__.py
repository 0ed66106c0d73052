"""Training: from a file of scripts to a model with its card."""
