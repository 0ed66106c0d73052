"""Compares two texts, as one judge or as many role-players in one call (DRPE, section 3.2)."""
