"""Computes how fast blocks are finished, and when the last one will be."""

import math
from collections import Counter, deque
from typing import NamedTuple

_LATELY = 60.0  # seconds that "lately" covers, if enough blocks ended in them
_FEWEST = 8  # blocks from which a speed is read
_MOST_EVENTS = 2048  # that are held; of more, neighbours are joined
_SETTLE = 20.0  # seconds in which a displayed end of the run follows a new estimate
_BIN = 1.1  # factor from one bin of durations to the next


class _Ended(NamedTuple):
    """Blocks that ended: when the last one did, their tokens and their share of the work."""

    when: float
    tokens: int
    work: float


class Speed:
    """How fast an attempt works, from the times at which its parts were finished.

    Parts come in lumps, often several at once. So speeds are taken from one end of a part to
    another, never to this moment: they do not fall between two parts.
    """

    def __init__(self) -> None:
        self._ended: deque[_Ended] = deque()
        self._began = math.inf
        self._parts = self._tokens = 0
        self._work = 0.0
        self._shown: tuple[float, float] | None = None  # when, and the end that was displayed

    def add(self, when: float, seconds: float, tokens: int, work: float) -> None:
        """Adds a part.

        Args:
            when: Its end.
            seconds: What it took.
            tokens: Of its documents.
            work: Its share of the run's work, in any unit.
        """
        self._began = min(self._began, when - seconds)
        self._parts += 1
        self._tokens += tokens
        self._work += work
        self._ended.append(_Ended(when, tokens, work))
        if len(self._ended) > _MOST_EVENTS:
            self._halve()

    def _halve(self) -> None:
        events = sorted(self._ended)
        self._ended = deque(
            _Ended(two.when, one.tokens + two.tokens, one.work + two.work)
            for one, two in zip(events[::2], events[1::2], strict=False)
        )
        if len(events) % 2:
            self._ended.append(events[-1])

    def overall(self) -> float:
        """Tokens a second since the first part of this attempt began; 0.0 before one ended."""
        return self._tokens / self._elapsed() if self._parts else 0.0

    def lately(self) -> float:
        """Tokens a second of the last minute with parts; overall before there are enough."""
        found = self._recent()
        return self.overall() if found is None else found[0]

    def _elapsed(self) -> float:
        last = max(each.when for each in self._ended)
        return max(last - self._began, 0.001)

    def _recent(self) -> tuple[float, float] | None:
        """Tokens and work a second of the last parts; None if they are too few to tell."""
        events = sorted(self._ended)
        if len(events) <= _FEWEST:
            return None
        last = events[-1].when
        first = max((n for n, each in enumerate(events) if each.when <= last - _LATELY), default=0)
        first = min(first, len(events) - 1 - _FEWEST)
        seconds = last - events[first].when
        if seconds <= 0:
            return None
        after = events[first + 1 :]
        tokens, work = sum(each.tokens for each in after), sum(each.work for each in after)
        return tokens / seconds, work / seconds

    def seconds_left(self, left: float, now: float) -> float | None:
        """Seconds until so much work is done, as displayed; None before a part ended.

        A new estimate is taken over little by little, so that what people see counts down.
        """
        if not self._work:
            return None
        elapsed = self._elapsed()
        overall = self._work / elapsed
        found = self._recent()
        rate = overall if found is None or not found[1] else math.sqrt(overall * found[1])
        # Between two parts work goes on; if none ends for long, no more is counted down.
        last = max(each.when for each in self._ended)
        gap = elapsed / self._parts
        end = max(last, now - 2 * gap) + left / rate
        if self._shown is not None:
            then, shown = self._shown
            settle = min(_SETTLE, elapsed / 4)  # the first parts say little
            end = shown + (end - shown) * (1 - math.exp(-(now - then) / settle))
        self._shown = now, end
        return max(end - now, 0.0)


class Durations:
    """The median of any number of durations, within a tenth, in little memory."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._count = 0

    def add(self, seconds: float) -> None:
        """Adds one."""
        self._bins[round(math.log(max(seconds, 0.001), _BIN))] += 1
        self._count += 1

    def median(self) -> float | None:
        """The median in seconds; None if there are none."""
        passed = 0
        for place in sorted(self._bins):
            passed += self._bins[place]
            if 2 * passed >= self._count:
                return float(_BIN**place)
        return None
