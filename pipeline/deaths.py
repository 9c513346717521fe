"""Deaths: the blocks that processes had before them when they died, for people."""

from pipeline.embed_run import EmbedRun
from pipeline.secrets import hide_secrets
from transforms.under_way import Death, deaths

_MOST_NAMED = 5


def death_lines(run: EmbedRun) -> list[str]:
    """What is to be said of blocks that were under way when a process died, nothing if none were.

    A store that does not answer now has said so elsewhere.
    """
    try:
        found = deaths(run.output, run.fingerprint)
    except OSError:
        return []
    suspects = [each for each in found if each.block not in run.options.leave_out]
    lines = [_line(each) for each in suspects[:_MOST_NAMED]]
    if len(suspects) > _MOST_NAMED:
        lines.append(f"note: and {len(suspects) - _MOST_NAMED} further blocks")
    if suspects:
        numbers = ",".join(map(str, (*run.options.leave_out, suspects[0].block)))
        which = "it kills" if len(suspects) == 1 else "one kills"
        lines.append(f"note: if {which} every process, do without it: --leave_out {numbers}")
    return lines


def _line(death: Death) -> str:
    times = "" if death.times == 1 else f", {death.times} times"
    unsure = "" if death.certain else ", unless it still is, on another machine"
    place = hide_secrets(death.place)
    return f"note: block {death.block} ({place}) was under way when its process died{times}{unsure}"
