"""Whether one system does better than another on the same items: paired tests, effects, a gate."""
