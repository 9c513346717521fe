"""Shows how far jobs are: the progress line, and `watch`."""
