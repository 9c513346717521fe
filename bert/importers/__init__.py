"""Importers: a model folder in, a bundle out; what the folder holds tells which importer."""

from pathlib import Path

from bert.bundle import Bundle


def import_model(
    source: str,
    dest: str,
    *,
    checkpoint: str | None = None,
    lower_case: bool | None = None,
    activation: str | None = None,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports a google-research checkpoint or a Hugging Face folder into a bundle at `dest`.

    Args:
        source: The folder.
        dest: The bundle's folder, which must not exist or be empty.
        checkpoint: Which checkpoint of a google-research folder; None takes the latest.
        lower_case: Whether a google-research model is uncased; None judges by the folder's name.
        activation: `gelu` (erf), `gelu_new` (tanh) or `relu` instead of what a google-research
            configuration means.
        name: What the bundle says of its source; the folder's path if not given.
        licence: What it says of the licence.

    Raises:
        ValueError: No model of these kinds, one that cannot be computed, or a setting that is for
            the other kind.
    """
    from bert.importers import google, huggingface

    facts = {"name": name, "licence": licence}
    folder = Path(source)
    converted = checkpoint is None and any(folder.glob("model.safetensors*"))
    if (folder / google.CONFIG).is_file() and not converted:
        return google.import_google(
            source,
            dest,
            checkpoint=checkpoint,
            lower_case=lower_case,
            activation=activation,
            **facts,
        )
    settings = {"checkpoint": checkpoint, "lower_case": lower_case, "activation": activation}
    given = [each for each, value in settings.items() if value is not None]
    if given:
        raise ValueError(
            f"--{given[0]} is for google-research checkpoints, but {source} holds no "
            f"{google.CONFIG}"
        )
    return huggingface.import_huggingface(source, dest, **facts)
