"""Judges that stand alone: of scripts, and of what else is judged by one model at a time."""
