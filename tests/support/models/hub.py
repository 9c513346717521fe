"""The cache of the Hugging Face hub, as `hf download` leaves it."""

from pathlib import Path


def snapshot_folder(hub: Path, name: str, commit: str) -> Path:
    """Returns the folder of a model's commit, which is its branch main, without a model."""
    home = hub / f"models--{name.replace('/', '--')}"
    folder = home / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / ".gitattributes").touch()  # of every repository
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    return folder
