"""What Beam's --setup_file runs; pyproject.toml has everything about the package."""

import shutil

from setuptools import setup
from setuptools.command.build import build


class _CleanBuild(build):
    """A build without what an earlier one left: setuptools packs modules removed since then."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build": _CleanBuild})
