"""Installs the command `bert-embed` and the packages bert, transforms and pipeline.

Also serves as Beam's --setup_file, so that workers of a runner get the same code.
"""

import re
from pathlib import Path

from setuptools import setup

_HERE = Path(__file__).parent
_VERSION = re.search(r'__version__ = "(.+)"', (_HERE / "bert" / "__init__.py").read_text("utf-8"))

setup(
    name="bert-embed",
    version=_VERSION[1],
    description="Turns a corpus of text into BERT vectors with Apache Beam",
    long_description=(_HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.11",
    packages=[
        "bert",
        "bert.importers",
        "transforms",
        "transforms.sinks",
        "transforms.sources",
        "pipeline",
    ],
    install_requires=[
        "apache-beam[gcp]>=2.77,<3",
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20,<2.22",
        "tensorflow-hub>=0.16.1,<1",
        "google-cloud-storage>=3.4,<4",
        "ai-edge-litert>=2.3,<3",
        "google-crc32c>=1.5,<2",
        "numpy>=2,<3",
        "orjson>=3.10,<4",
        "polars>=2,<3",
        "pyarrow>=18",
        "pyyaml>=6,<7",
        "rich>=13",
        "safetensors>=0.5,<1",
        "xxhash>=3.5,<5",
        "zstandard>=0.23,<1",
    ],
    entry_points={"console_scripts": ["bert-embed=pipeline.__main__:run"]},
)
