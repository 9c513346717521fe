"""Writing blocks: one file a format."""
