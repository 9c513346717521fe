"""Encoders in processes that fork, are interrupted, or end while threads encode; real processes."""

import sys

import pytest

from tests.support.command import ran

pytestmark = pytest.mark.slow

_START = """
import multiprocessing, os, random, signal, sys, threading, time
import numpy as np
import bert_embed

folder = sys.argv[1]
encoder = bert_embed.load(folder, threads=2)
texts = [f"text {number} {'vault ' * (number % 20)}" for number in range(60)]
expected = encoder.encode(texts)

def is_right(_=None):
    return bool(np.array_equal(encoder.encode(texts), expected))

stop = threading.Event()

def keep_encoding(name):
    number = 0
    while not stop.is_set():
        number += 1
        encoder.encode([f"{name} né{number} wörter {row * number}" for row in range(50)])

threads = [threading.Thread(target=keep_encoding, args=(n,), daemon=True) for n in "ab"]
"""
_FORKS = """
fork = multiprocessing.get_context("fork")

def child(nested):
    right = is_right()
    if nested:
        again = fork.Process(target=child, args=(False,))
        again.start()
        again.join()
        right &= again.exitcode == 0
    sys.exit(0 if right else 3)

for thread in threads:
    thread.start()
children = [fork.Process(target=child, args=(True,)) for _ in range(12)]
for number, process in enumerate(children):
    time.sleep(0.003 * number)
    process.start()
stop.set()
for process in children:
    process.join(40)
print([process.exitcode for process in children], is_right())
for process in children:
    process.kill()
"""
_INTERRUPTS = """
random.seed(1)
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, at any moment
wrong = interrupted = 0

def ignored(error):
    # Python drops an interruption that comes in a callback of its own.
    global interrupted
    if error.exc_type is KeyboardInterrupt:
        interrupted += 1
    else:
        sys.__unraisablehook__(error)

sys.unraisablehook = ignored
for attempt in range(150):
    number = str(attempt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + random.random() * 0.02)
        for row in range(100):
            encoder.encode([f"né{number} {row} {word}" for word in ("vault", "ältere", row % 9)])
        time.sleep(1)
    except KeyboardInterrupt:
        interrupted += 1
    wrong += not is_right()
fresh = bert_embed.load(folder, threads=2)
words = [f"né{attempt} ältere {attempt * 7}" for attempt in range(150)]
print(interrupted, wrong, np.array_equal(encoder.encode(words), fresh.encode(words)))
"""
_AFTER_EXIT = """
import atexit

def ended():
    before = dict(counts)
    time.sleep(0.5)
    print(counts == before, is_right(), time.monotonic() - began < 8)

atexit.register(ended)
counts = {}
"""
_ENDLESS = """
def count(name):
    while True:
        encoder.encode([f"{name} {row}" for row in range(3)])
        counts[name] = counts.get(name, 0) + 1

long = [f"né{number} wörter " * 9 for number in range(300_000)]
for name in "abc":
    threading.Thread(target=count, args=(name,), daemon=True).start()
threading.Thread(target=encoder.encode, args=(long,), daemon=True).start()
last = threading.Thread(target=lambda: time.sleep(0.5) or print(is_right()))
last.start()
time.sleep(0.4)
began = time.monotonic()
"""


def run(program, folder):
    """What a program prints; it fails where it ends otherwise than well, or says anything else."""
    if not program.startswith(_AFTER_EXIT):
        program = _START + program
    ended = ran([sys.executable, "-c", program, folder])
    problems = [line for line in ended.stderr.splitlines() if not line.startswith("INFO:")]
    assert (ended.returncode, problems) == (0, []), ended.stderr
    return ended.stdout


def test_processes_forked_while_threads_encode_encode_and_fork(tiny_bundle):
    assert run(_FORKS, tiny_bundle) == f"{[0] * 12} True\n"


def test_a_call_after_an_interrupted_one_is_right(tiny_bundle):
    assert run(_INTERRUPTS, tiny_bundle) == "150 0 True\n"


def test_no_thread_begins_a_call_once_the_exit_began(tiny_bundle):
    """A thread that is no daemon goes on; a handler at exit, registered first, may encode."""
    assert run(_AFTER_EXIT + _START + _ENDLESS, tiny_bundle) == "True\nTrue True True\n"
