"""Real text in many scripts for the benchmarks: Django's messages in its 96 languages (BSD)."""

import ast
import random
import re

from benchmarks.peers import peer_python

_SEED = 20250802
_MESSAGES = 3  # of one language make a text of about 80 characters
_TRANSLATION = re.compile(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', re.MULTILINE)


def multilingual_texts(count: int) -> list[str]:
    """Returns `count` texts of all languages, in an order that is random but always the same."""
    draw = random.Random(_SEED)
    packages = peer_python().parents[1] / "lib"
    languages: dict[str, list[str]] = {}
    for path in sorted(packages.glob("python*/site-packages/django/**/LC_MESSAGES/*.po")):
        language = path.parts[-3]
        if not language.startswith("en"):
            quoted = _TRANSLATION.findall(path.read_text(encoding="utf-8"))[1:]  # 0: the header
            messages = ["".join(map(ast.literal_eval, each.splitlines())) for each in quoted]
            languages.setdefault(language, []).extend(filter(None, messages))
    texts: list[str] = []
    while len(texts) < count:
        for messages in languages.values():
            draw.shuffle(messages)
            groups = zip(*[iter(messages)] * _MESSAGES, strict=False)
            texts.extend(" ".join(group).replace("\n", " ") for group in groups)
    draw.shuffle(texts)
    return texts[:count]
