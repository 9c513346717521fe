"""Notes of TensorFlow's start are left out of stderr; everything else is shown, even at a crash."""

import subprocess
import sys
import textwrap

import pytest

from tests.support.command import ROOT


def stderr_of(code):
    """What a process wrote to stderr that runs the code within `quiet_start`."""
    head = "import os\nfrom bert_embed.quiet import quiet_start\nwith quiet_start():\n"
    program = head + textwrap.indent(code, "    ")
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "os._exit(3)", "pass"])
def test_what_is_said_before_a_crash_is_shown(end):
    said = stderr_of(f"os.write(2, b'compiled to use AVX512 instructions\\n')\n{end}")
    assert "compiled to use AVX512 instructions" in said


def test_lines_of_other_threads_are_shown_at_once():
    """The line must be through before the block ends, for nobody knows how it will."""
    code = """
        import select, subprocess
        r, w = os.pipe()
        os.dup2(w, 2)
        from bert_embed.quiet import without_notes
        with without_notes():
            thread = threading.Thread(target=os.write, args=(2, b"from a thread"))
            thread.start()
            thread.join()
            ready = select.select([r], [], [], 20)[0]
            seen = os.read(r, 100) if ready else b"nothing"
        print(seen.decode())
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import os, threading\n{textwrap.dedent(code)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "from a thread\n"


@pytest.mark.slow  # starts TensorFlow anew
def test_notes_are_left_out():
    said = stderr_of(
        "import tensorflow as tf\ntf.constant(1) + 1\nos.write(2, b'after all\\n')\nos.write(2, b"
        "'INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\\n')"
    )
    assert said == "after all\n"


def test_the_note_of_processors_with_avx512_is_left_out():
    note = "I0000 00:00:1.0 1 port.cc:153] oneDNN custom operations are on. You may see slightly"
    assert stderr_of(f"os.write(2, b'{note}\\nafter all\\n')") == "after all\n"
