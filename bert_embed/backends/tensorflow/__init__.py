"""The engine of GPUs, and SavedModels."""
