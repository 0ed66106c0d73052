"""The edge service: predicts the order of events with a trained encoder."""
