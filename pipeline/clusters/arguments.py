"""Parses the command lines of `cluster` and `dedup`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_embed.clusters.assign import MOST_CLUSTERS
from bert_embed.clusters.keep import WHICH_TO_KEEP
from bert_embed.pipeline.beam_words import check_beam_words
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.parser import Parser, program
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions

_DESCRIPTIONS = {
    "cluster": "Clusters the vectors of a run by k-means on cosines. Also takes every option of "
    "Apache Beam.",
    "dedup": "Finds documents of a run whose vectors are nearly the same, and which of them to "
    "keep. Also takes every option of Apache Beam.",
}
_EPS = 0.01  # NeMo Curator's default
_MOST_NEAREST = 64
_MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class ClusterOptions:
    """The options of `cluster` and `dedup`; UsageError where one is out of its range."""

    command: str  # `cluster` or `dedup`
    embeddings: str  # output folder of a run
    output: str  # folder to write to
    n_clusters: int | None  # how many clusters; None for the default, which depends on the vectors
    seed: int  # of the sample, the first centroids and `random`
    overwrite: bool  # whether to remove the files of another such job
    job: RunnerOptions  # where it runs
    threshold: float | None = None  # least cosine of duplicates; None for `cluster`
    which_to_keep: str = WHICH_TO_KEEP[0]  # one of `WHICH_TO_KEEP`
    n_nearest: int = 1  # in how many clusters, at most, a vector is compared

    def __post_init__(self) -> None:
        most = {"n_clusters": MOST_CLUSTERS, "seed": _MOST_SEED, "n_nearest": _MOST_NEAREST}
        for name, highest in most.items():
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if value is not None and not least <= value <= highest:
                raise UsageError(f"--{name} must be between {least} and {highest:,}, got {value}")


def cluster_parser(command: str) -> Parser:
    """The parser of `cluster` or `dedup`."""
    usage = f"{program()} {command} DIR OUT [flags]"
    parser = Parser(command, _DESCRIPTIONS[command], usage=usage)
    add = parser.add_argument
    add("embeddings", metavar="DIR", help="a run's output")
    add("output", metavar="OUT", help="folder for the result")
    clusters = "number of clusters (default: the square root of the number of vectors, at most "
    add("--n_clusters", type=int, metavar="N", help=f"{clusters}4096)")
    add("--seed", type=int, default=0, help="of the sample and the first centroids (default: 0)")
    if command == "dedup":
        eps = f"duplicates have a cosine of at least 1 - EPS (default: {_EPS})"
        add("--eps", type=float, help=eps)
        add("--threshold", type=float, help="the same as a cosine, instead of --eps")
        keep = "of duplicates the one that is far from its centroid, near it, or any (default: "
        first = WHICH_TO_KEEP[0]
        add("--which_to_keep", choices=WHICH_TO_KEEP, default=first, help=f"{keep}{first})")
        nearest = (
            "compare a vector near a border in N clusters, at most; more finds more pairs "
            "across borders (default: 2)"
        )
        add("--n_nearest", type=int, default=2, metavar="N", help=nearest)
    others = "first remove the files of another cluster or dedup"
    add("--overwrite", action="store_true", help=others)
    runner = f"Beam's runner (default: {DEFAULT_RUNNER})"
    add("--runner", default=DEFAULT_RUNNER, metavar="NAME", help=runner)
    return parser


def parse_clusters(command: str, arguments: Sequence[str]) -> ClusterOptions:
    """Reads the command line of `cluster` or `dedup`; UsageError if it is wrong."""
    parser = cluster_parser(command)
    known, unknown = parser.parse_known_args(arguments)
    values = vars(known)
    job = RunnerOptions(values.pop("runner"), tuple(unknown))
    flags = list(parser._option_string_actions)
    alone = f"give DIR and OUT once; {command} takes no other words"
    check_beam_words(unknown, flags, job, parser.prog, alone)
    if command == "dedup":
        values["threshold"] = _threshold(values.pop("eps"), values["threshold"])
    return ClusterOptions(command=command, job=job, **values)


def _threshold(eps: float | None, threshold: float | None) -> float:
    if eps is not None and threshold is not None:
        raise UsageError("--eps conflicts with --threshold, which is 1 - eps: give one of them")
    if threshold is not None:
        if not 0 < threshold <= 1:
            raise UsageError(f"--threshold must be above 0 and at most 1, got {threshold}")
        return threshold
    eps = _EPS if eps is None else eps
    if not 0 <= eps < 1:
        raise UsageError(f"--eps must be at least 0 and below 1, got {eps}")
    return 1 - eps
