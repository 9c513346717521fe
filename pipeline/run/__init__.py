"""A run of `embed` or `tokenize`, from its options to its summary."""
