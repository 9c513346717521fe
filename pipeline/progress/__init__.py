"""Shows how far runs are: the progress line, `watch`, and the metrics file."""
