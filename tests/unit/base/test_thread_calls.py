"""Calls on several threads: all results in order, errors raised, a call that hangs given up."""

import queue
import sys
import threading
import time

import pytest

from bert_embed.base.threads import NoProgressError, run_each
from tests.support.command import ran

pytestmark = pytest.mark.slow


def test_results_come_in_the_order_of_the_items_whoever_ends_first():
    def late_for_small(number):
        time.sleep(0.002 * (20 - number))
        return number * number

    assert run_each(late_for_small, range(20), 7) == [n * n for n in range(20)]
    assert run_each(late_for_small, [], 3) == []


def test_as_many_calls_as_threads_are_under_way_at_once():
    together = threading.Barrier(3)
    assert run_each(lambda _: together.wait(30) < 3, range(6), 3) == [True] * 6


def test_an_error_is_raised_once_the_others_have_ended_and_no_call_begins_after_it():
    begun, ended, other = [], [], queue.SimpleQueue()

    def call(number):
        begun.append(number)
        if number == 1:
            other.put(threading.current_thread())
            raise LookupError("number 1")
        other.get(timeout=60).join(60)  # until the error is known
        ended.append(number)

    with pytest.raises(LookupError, match="number 1"):
        run_each(call, range(100), 2)
    assert begun == [0, 1]
    assert ended == [0]


def test_what_moves_on_is_waited_for_and_what_hangs_is_given_up():
    run_each(lambda _: time.sleep(0.25), range(9), 1, timeout=2.0)  # longer as a whole

    never = threading.Event()
    with pytest.raises(NoProgressError, match=r"no call came to an end in 0\.3 s"):
        run_each(lambda number: number == 3 and never.wait(), range(6), 2, timeout=0.3)


def test_a_hanging_call_does_not_keep_the_process_from_its_end():
    program = (
        "import threading; from bert_embed.base.threads import run_each\n"
        "try: run_each(lambda _: threading.Event().wait(), [1], 1, timeout=0.1)\n"
        "except RuntimeError as error: print('given up')\n"
    )
    assert ran([sys.executable, "-c", program], check=True).stdout == "given up\n"
