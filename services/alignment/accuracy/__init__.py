"""How often predicted labels are right, in groups, with what abstentions count as in the open."""
