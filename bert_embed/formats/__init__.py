"""File formats of results and examples."""
