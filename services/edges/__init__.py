"""The edge service: a trained model that says which event of a script comes before which."""
