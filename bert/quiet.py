"""Quiet: loads TensorFlow without the page of notes that it prints about the machine."""

import os
import sys
import tempfile
import threading

_lock = threading.Lock()


def load_tensorflow() -> None:
    """Imports TensorFlow and runs a first operation, its start-up notes kept off stderr.

    The C++ side prints them before any setting of its own could stop it. What it says is shown
    all the same if the import fails. Later imports cost nothing; later messages come through.
    """
    with _lock:
        if "tensorflow" in sys.modules:
            return
        sys.stderr.flush()
        stderr = os.dup(2)
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 2)
            try:
                import tensorflow as tf

                tf.constant(0)  # the devices are looked for only now
            except BaseException:
                said.seek(0)
                os.write(stderr, said.read())
                raise
            finally:
                os.dup2(stderr, 2)
                os.close(stderr)
