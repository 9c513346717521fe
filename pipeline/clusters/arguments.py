"""Declares the options of `cluster` and `dedup`."""

from dataclasses import dataclass
from typing import Any

from bert_embed.clusters.assign import MOST_CLUSTERS
from bert_embed.clusters.keep import WHICH_TO_KEEP
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import DIRS, PLACES, Decimal, Whole, flag, positional, switch
from bert_embed.pipeline.parser import CommandOptions
from bert_embed.pipeline.runner_options import DEFAULT_RUNNER, RunnerOptions

_EPS = 0.01  # NeMo Curator's default
_MOST_NEAREST = 64
_MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class ClusterOptions(CommandOptions):
    """Clusters the vectors of runs by k-means on cosines."""

    embeddings: tuple[str, ...] = positional("DIR...", DIRS, kind=PLACES)
    output: str = positional("OUT", "folder for the result")
    n_clusters: int | None = flag(
        "number of clusters (default: the square root of the number of vectors, at most 4096)",
        "N",
        kind=Whole(1, MOST_CLUSTERS),
    )
    seed: int = flag("of the sample and the first centroids", "N", 0, kind=Whole(0, _MOST_SEED))
    overwrite: bool = switch("first remove the files of another cluster or dedup")
    runner: str = flag("Beam's runner", "NAME", DEFAULT_RUNNER)
    beam_args: tuple[str, ...] = ()

    @property
    def job(self) -> RunnerOptions:
        """Where the job runs."""
        return RunnerOptions(self.runner, self.beam_args)

    @property
    def duplicates(self) -> dict[str, Any]:
        """The fields of ClusterJob that say what a duplicate is; empty where none is looked for."""
        return {}


@dataclass(frozen=True)
class DedupOptions(ClusterOptions):
    """Finds documents of runs whose vectors are nearly the same, and which of them to keep."""

    eps: float | None = flag(
        f"duplicates have a cosine of at least 1 - EPS (default: {_EPS})",
        kind=Decimal("at least 0 and below 1", lambda eps: 0 <= eps < 1),
    )
    threshold: float | None = flag(
        "the same as a cosine, instead of --eps",
        kind=Decimal("above 0 and at most 1", lambda cosine: 0 < cosine <= 1),
    )
    which_to_keep: str = flag(
        "of duplicates the one that is far from its centroid, near it, or any",
        default=WHICH_TO_KEEP[0],
        choices=WHICH_TO_KEEP,
    )
    n_nearest: int = flag(
        "compare a vector near a border in N clusters, at most; more finds more pairs across "
        "borders",
        "N",
        2,
        kind=Whole(1, _MOST_NEAREST),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps is not None and self.threshold is not None:
            raise UsageError("--eps conflicts with --threshold, which is 1 - eps: give one of them")

    @property
    def duplicates(self) -> dict[str, Any]:
        """The fields of ClusterJob that say what a duplicate is."""
        least = 1 - (_EPS if self.eps is None else self.eps)
        return {
            "threshold": least if self.threshold is None else self.threshold,
            "which_to_keep": self.which_to_keep,
            "n_nearest": self.n_nearest,
        }
