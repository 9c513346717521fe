"""What a model has behind its last layer: one file a head."""
