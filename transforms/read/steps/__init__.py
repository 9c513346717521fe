"""The steps of a pipeline that read; what they call works without Beam."""
