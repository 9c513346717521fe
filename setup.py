"""What Beam's --setup_file runs; pyproject.toml has everything about the package."""

from setuptools import setup

setup()
