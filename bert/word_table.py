"""A hash table from short words to numbers that is asked for many words at once, and is exact."""

import functools

import numpy as np

_FEWEST = 1 << 14  # slots of an empty table


def word_keys(chars: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns the first `width` bytes of each word, uint64 `[words, width / 8]`, zeros after it.

    Args:
        chars: uint8 or uint16 `[length]`, no zeros.
        starts: int64 `[words]`, where each word starts in `chars`.
        lengths: int64 `[words]`, its number of chars.
        width: A multiple of 8.
    """
    size = chars.itemsize
    data = np.zeros(len(chars) * size + width, np.uint8)
    data[: len(chars) * size] = chars.view(np.uint8)
    windows = np.ndarray((len(chars),), f"V{width}", data, strides=(size,))
    keys = windows.take(starts).view(np.uint64).reshape(-1, width // 8)
    keys &= _masks(width).take(np.minimum(lengths * size, width), axis=0)
    return keys


@functools.cache
def _masks(width: int) -> np.ndarray:
    """Returns the masks that keep 0, 1, ... `width` bytes, uint64 `[width + 1, width / 8]`."""
    return (np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)).view(np.uint64)


class WordTable:
    """Open addressing with linear probing, at most half full.

    Args:
        columns: uint64s of a key.
    """

    def __init__(self, columns: int) -> None:
        # A key's columns, then its value; 0 as a value is an empty slot.
        self._slots = np.zeros((_FEWEST, columns + 1), np.uint64)
        self._used = 0
        # Drawn anew for each table, so that no text can be written to make it slow.
        self._factors = np.random.default_rng().integers(1 << 63, size=columns, dtype=np.uint64)
        self._factors |= np.uint64(1)

    def __len__(self) -> int:
        return self._used

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the value of each key, int64 `[keys]`; 0 where it has none."""
        at = self._home(keys)
        slots = self._slots.take(at, axis=0)
        values = slots[:, -1].view(np.int64)
        same = _same(slots, keys)
        found = np.where(same, values, 0)
        rest = np.flatnonzero(~same & (values != 0))
        while len(rest):
            at[rest] = (at[rest] + 1) & (len(self._slots) - 1)
            slots = self._slots.take(at[rest], axis=0)
            values = slots[:, -1].view(np.int64)
            same = _same(slots, keys[rest])
            found[rest[same]] = values[same]
            rest = rest[~same & (values != 0)]
        return found

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds keys, all different and none of them there yet, with values other than 0."""
        self._used += len(keys)
        if 2 * self._used > len(self._slots):
            old = self._slots[self._slots[:, -1] != 0]
            size = 1 << (4 * self._used - 1).bit_length()
            self._slots = np.zeros((size, self._slots.shape[1]), np.uint64)
            self._place(old)
        self._place(np.concatenate([keys, values.astype(np.uint64)[:, None]], axis=1))

    def _place(self, slots: np.ndarray) -> None:
        at, rest = self._home(slots[:, :-1]), np.arange(len(slots))
        while len(rest):
            free = self._slots[at[rest], -1] == 0
            # Several may want one slot: the last that writes its number there gets it.
            self._slots[at[rest[free]], -1] = rest[free] + 1
            won = free & (self._slots[at[rest], -1] == rest + 1)
            self._slots[at[rest[won]]] = slots[rest[won]]
            rest = rest[~won]
            at[rest] = (at[rest] + 1) & (len(self._slots) - 1)

    def _home(self, keys: np.ndarray) -> np.ndarray:
        mixed = keys[:, 0] * self._factors[0]
        for column in range(1, keys.shape[1]):
            mixed ^= mixed >> np.uint64(29)
            mixed += keys[:, column] * self._factors[column]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[0]
        return (mixed >> np.uint64(65 - len(self._slots).bit_length())).astype(np.int64)


def _same(slots: np.ndarray, keys: np.ndarray) -> np.ndarray:
    same = slots[:, 0] == keys[:, 0]
    for column in range(1, keys.shape[1]):
        same &= slots[:, column] == keys[:, column]
    return same
