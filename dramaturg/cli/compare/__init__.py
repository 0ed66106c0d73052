"""``dramaturg compare``: whether a run may take another's place."""
