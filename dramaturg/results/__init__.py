"""Results as flat judgements, and what is worked out from them; shared by the gateway and the report."""
