"""Encoders under the interfaces of other libraries, each of which must be installed."""
