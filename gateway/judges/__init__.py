"""Which judges there are, who they are and how each role's contract is called."""
