"""The embedding service: texts to unit vectors."""
