"""The counts of a run against its plan."""
