"""How scores go with those of people, and whether one goes better than another."""
