"""Only what is new: keys and earlier outputs."""
