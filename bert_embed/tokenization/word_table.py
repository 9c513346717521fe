"""An exact hash table from short words to numbers, which looks up many words at once."""

import functools

import numpy as np

_FEWEST = 1 << 14  # slots of an empty table


def word_keys(chars: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns words' first `width` bytes, a multiple of 8, uint64 `[words, width / 8]`, then 0."""
    size = chars.itemsize
    data = np.zeros(len(chars) * size + width, np.uint8)
    data[: len(chars) * size] = chars.view(np.uint8)
    windows = np.ndarray((len(chars),), f"V{width}", data, strides=(size,))
    # `take` would first make a copy of all the windows.
    keys = windows[starts].view(np.uint64).reshape(-1, width // 8)
    keys &= _masks(width).take(np.minimum(lengths * size, width), axis=0)
    return keys


@functools.cache
def _masks(width: int) -> np.ndarray:
    """Returns the masks that keep 0, 1, ... `width` bytes, uint64 `[width + 1, width / 8]`."""
    return (np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)).view(np.uint64)


class WordTable:
    """Open addressing with linear probing, at most half full; `columns` uint64s are a key."""

    def __init__(self, columns: int) -> None:
        # The columns of a key, then its value, which is 0 in an empty slot. NumPy copies rows of 32
        # bytes at once, but not those of 24.
        self._columns = columns
        self._slots = np.zeros((_FEWEST, max(columns + 1, 4)), np.uint64)
        self._used = 0
        # Random for each table, so that nobody can write a text that makes it slow.
        self._factors = np.random.default_rng().integers(1 << 63, size=columns, dtype=np.uint64)
        self._factors |= np.uint64(1)

    def __len__(self) -> int:
        return self._used

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the value of each key, int64 `[keys]`; 0 where it has none."""
        at = self._home(keys)
        slots = self._slots.take(at, axis=0)
        values = slots[:, self._columns].view(np.int64)
        same = _same(slots, keys)
        found = np.where(same, values, 0)
        rest = np.flatnonzero(~same & (values != 0))
        at, keys = at.take(rest), keys.take(rest, axis=0)
        while len(rest):
            at = (at + 1) & (len(self._slots) - 1)
            slots = self._slots.take(at, axis=0)
            values = slots[:, self._columns].view(np.int64)
            same = _same(slots, keys)
            found[rest[same]] = values[same]
            going_on = np.flatnonzero(~same & (values != 0))
            rest, at, keys = rest.take(going_on), at.take(going_on), keys.take(going_on, axis=0)
        return found

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds keys that are different and not in the table, with values other than 0."""
        self._used += len(keys)
        if 2 * self._used > len(self._slots):
            old = self._slots[self._slots[:, self._columns] != 0]
            size = 1 << (4 * self._used - 1).bit_length()
            self._slots = np.zeros((size, self._slots.shape[1]), np.uint64)
            self._place(old)
        new = np.zeros((len(keys), self._slots.shape[1]), np.uint64)
        new[:, : self._columns], new[:, self._columns] = keys, values.astype(np.uint64)
        self._place(new)

    def _place(self, slots: np.ndarray) -> None:
        at = self._home(slots[:, : self._columns])
        numbers = np.arange(1, len(slots) + 1, dtype=np.uint64)
        values = self._slots[:, self._columns]
        # Rows as one item each are copied in half of the time.
        table, rest = _as_items(self._slots), _as_items(slots)
        while len(rest):
            free = values[at] == 0
            # Where several keys have the same slot, the last one that writes its number gets it.
            values[at[free]] = numbers[free]
            won = free & (values[at] == numbers)
            table[at[won]] = rest[won]
            lost = np.flatnonzero(~won)
            rest, numbers = rest[lost], numbers.take(lost)
            at = (at.take(lost) + 1) & (len(table) - 1)

    def distinct(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns different keys, and the number of each key among them, int64 `[keys]`."""
        order = np.argsort(self._mixed(keys))
        ordered = keys.take(order, axis=0)
        new = np.ones(len(keys), bool)
        new[1:] = ~_same(ordered[1:], ordered[:-1])
        number = np.empty(len(keys), np.int64)
        number[order] = np.cumsum(new) - 1
        return ordered[new], number

    def _home(self, keys: np.ndarray) -> np.ndarray:
        mixed = self._mixed(keys)
        mixed >>= np.uint64(65 - len(self._slots).bit_length())
        return mixed.view(np.int64)

    def _mixed(self, keys: np.ndarray) -> np.ndarray:
        mixed = keys[:, 0] * self._factors[0]
        for column in range(1, keys.shape[1]):
            mixed ^= mixed >> np.uint64(29)
            mixed += keys[:, column] * self._factors[column]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[0]
        return mixed


def _as_items(rows: np.ndarray) -> np.ndarray:
    return rows.view(f"V{rows.strides[0]}")[:, 0]


def _same(slots: np.ndarray, keys: np.ndarray) -> np.ndarray:
    same = slots[:, 0] == keys[:, 0]
    for column in range(1, keys.shape[1]):
        same &= slots[:, column] == keys[:, column]
    return same
