"""``dramaturg plan``: how many samples a study needs, from a pilot."""
