"""The commands `cluster` and `dedup`."""
