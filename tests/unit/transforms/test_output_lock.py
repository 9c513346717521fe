"""An output has one holder alone, or several together."""

import builtins
import os

from bert_embed.transforms.output_folder import lock_held


def test_one_alone_keeps_others_out(tmp_path):
    path = str(tmp_path / "state" / "lock")
    with lock_held(path, alone=True) as first, lock_held(path, alone=False) as second:
        assert (first, second, os.path.exists(path)) == (True, False, True)
    with lock_held(path, alone=False) as first, lock_held(path, alone=False) as second:
        assert (first, second) == (True, True)
    assert not os.path.exists(path)


def test_a_file_that_the_last_holder_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    path, opened, removed = str(tmp_path / "lock"), builtins.open, []

    def opened_too_early(place, *mode):
        file = opened(place, *mode)
        if place == path and not removed:
            removed.append(os.remove(place))
        return file

    monkeypatch.setattr(builtins, "open", opened_too_early)
    with lock_held(path, alone=True) as first, lock_held(path, alone=True) as second:
        assert (first, second) == (True, False)
