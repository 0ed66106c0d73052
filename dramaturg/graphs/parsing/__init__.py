"""Reading script graphs from what models and people write: numbered steps, DOT, JSON."""
