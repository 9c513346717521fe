"""Commands that stop in the middle of their work and wait there for a test.

A job that is killed, interrupted or watched must be in the middle then, on slow machines and fast
ones. So the first calls of a function pass, in whichever process of the job, and each later one
waits until the test says go: the job comes to the same place always, and no further.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import ROOT, start

REPORT = "bert_embed.transforms.output_folder|OutputFolder|write_block_record"  # a part is finished


@dataclass
class Hold:
    """Where a function is held, and after how many calls of it.

    Attributes:
        folder: Does not exist yet; processes signal each other by files in it.
        calls: So many pass.
        function: Its module, class and name; without a class, a function of a built-in module.
    """

    folder: Path
    calls: int
    function: str = REPORT

    def __post_init__(self) -> None:
        self.folder.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What a process and its children need in their environment to be held."""
        path = [str(ROOT / "tests" / "support" / "held_site"), os.environ.get("PYTHONPATH", "")]
        words = f"{self.folder}|{self.calls}|{self.function}"
        return {"BERT_EMBED_HELD": words, "PYTHONPATH": os.pathsep.join(filter(None, path))}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command and returns when it waits."""
        process = start(*arguments, **self.environment)
        self.wait(process)
        return process

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Returns when a call is held; the process must not end before."""
        while not list(self.folder.glob("held-*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)

    def go(self) -> None:
        """Lets all calls pass."""
        (self.folder / "go").touch()
