"""Reading blocks: one file a format."""
