"""Real text in many scripts for the benchmarks: Django's messages in its 96 languages (BSD)."""

import gettext
import random

from benchmarks.peers import peer_python

_SEED = 20250802
_MESSAGES = 3  # of one language make a text of about 80 characters


def multilingual_texts(count: int) -> list[str]:
    """Returns `count` texts of all languages, in an order that is random but always the same."""
    draw = random.Random(_SEED)
    packages = peer_python().parents[1] / "lib"
    languages: dict[str, list[str]] = {}
    for path in sorted(packages.glob("python*/site-packages/django/**/LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        language = path.parts[-3]
        if not language.startswith("en"):
            languages.setdefault(language, []).extend(messages[key] for key in messages if key)
    texts = []
    while len(texts) < count:
        for messages in languages.values():
            draw.shuffle(messages)
            groups = zip(*[iter(messages)] * _MESSAGES, strict=False)
            texts.extend(" ".join(group).replace("\n", " ") for group in groups)
    draw.shuffle(texts)
    return texts[:count]
