"""The engine of processors: graphs of LiteRT."""
