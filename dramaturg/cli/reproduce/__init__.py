"""``dramaturg reproduce``."""
