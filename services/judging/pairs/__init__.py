"""Compares two texts, as one judge or in several roles in one call (DRPE, section 3.2)."""
