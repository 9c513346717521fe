"""Parses the command lines of `cluster` and `dedup`."""

import argparse
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
    """The options of `cluster` and `dedup`.

    Attributes:
        command: `cluster` or `dedup`.
        embeddings: Output folder of a run.
        output: Folder to write to.
        n_clusters: How many clusters; None for the default, which depends on the vectors.
        seed: Of the sample, the first centroids and `random`.
        threshold: Least cosine of duplicates; None for `cluster`.
        which_to_keep: One of `WHICH_TO_KEEP`.
        n_nearest: In how many clusters, at most, a vector is compared.
        overwrite: Whether to remove the files of another such job.
        job: Where it runs.
    """

    command: str
    embeddings: str
    output: str
    n_clusters: int | None
    seed: int
    threshold: float | None
    which_to_keep: str
    n_nearest: int
    overwrite: bool
    job: RunnerOptions


def cluster_parser(command: str) -> Parser:
    """The parser of `cluster` or `dedup`."""
    parser = Parser(
        command,
        _DESCRIPTIONS[command],
        usage=f"{program()} {command} DIR OUT [flags]",
    )
    parser.add_argument("embeddings", metavar="DIR", help="a run's output")
    parser.add_argument("output", metavar="OUT", help="folder for the result")
    parser.add_argument(
        "--n_clusters",
        type=int,
        metavar="N",
        help="number of clusters (default: the square root of the number of vectors, at most 4096)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the sample and the first centroids (default: 0)"
    )
    if command == "dedup":
        _add_dedup_flags(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="first remove the files of another cluster or dedup",
    )
    parser.add_argument(
        "--runner",
        default=DEFAULT_RUNNER,
        metavar="NAME",
        help=f"Beam's runner (default: {DEFAULT_RUNNER})",
    )
    return parser


def _add_dedup_flags(parser: Parser) -> None:
    parser.add_argument(
        "--eps",
        type=float,
        help=f"duplicates have a cosine of at least 1 - EPS (default: {_EPS})",
    )
    parser.add_argument("--threshold", type=float, help="the same as a cosine, instead of --eps")
    parser.add_argument(
        "--which_to_keep",
        choices=WHICH_TO_KEEP,
        default=WHICH_TO_KEEP[0],
        help="of duplicates the one that is far from its centroid, near it, or any (default: "
        f"{WHICH_TO_KEEP[0]})",
    )
    parser.add_argument(
        "--n_nearest",
        type=int,
        default=2,
        metavar="N",
        help="compare a vector near a border in N clusters, at most; more finds more pairs "
        "across borders (default: 2)",
    )


def parse_clusters(command: str, arguments: Sequence[str]) -> ClusterOptions:
    """Reads the command line of `cluster` or `dedup`.

    Raises:
        UsageError: The arguments are wrong.
    """
    parser = cluster_parser(command)
    given, unknown = parser.parse_known_args(arguments)
    job = RunnerOptions(given.runner, tuple(unknown))
    flags = list(parser._option_string_actions)
    alone = f"give DIR and OUT once; {command} takes no other words"
    check_beam_words(unknown, flags, job, parser.prog, alone)
    _check_between("n_clusters", given.n_clusters, 1, MOST_CLUSTERS)
    _check_between("seed", given.seed, 0, _MOST_SEED)
    threshold = _threshold(given) if command == "dedup" else None
    n_nearest = getattr(given, "n_nearest", 1)
    _check_between("n_nearest", n_nearest, 1, _MOST_NEAREST)
    return ClusterOptions(
        command=command,
        embeddings=given.embeddings,
        output=given.output,
        n_clusters=given.n_clusters,
        seed=given.seed,
        threshold=threshold,
        which_to_keep=getattr(given, "which_to_keep", WHICH_TO_KEEP[0]),
        n_nearest=n_nearest,
        overwrite=given.overwrite,
        job=job,
    )


def _threshold(given: argparse.Namespace) -> float:
    if given.eps is not None and given.threshold is not None:
        raise UsageError("--eps conflicts with --threshold, which is 1 - eps: give one of them")
    if given.threshold is not None:
        if not 0 < given.threshold <= 1:
            raise UsageError(f"--threshold must be above 0 and at most 1, got {given.threshold}")
        return given.threshold
    eps = _EPS if given.eps is None else given.eps
    if not 0 <= eps < 1:
        raise UsageError(f"--eps must be at least 0 and below 1, got {eps}")
    return 1 - eps


def _check_between(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise UsageError(f"--{name} must be between {least} and {most:,}, got {value}")
