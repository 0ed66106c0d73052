"""``dramaturg runs``: evaluations of many samples that a gateway executes, independent of the command."""
