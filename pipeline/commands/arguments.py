"""Parses the command lines of `search`, `verify`, `card`, `report` and `watch`."""

import argparse
import math
from collections.abc import Sequence

from bert_embed.pipeline.parser import Once, Parser, program
from bert_embed.pipeline.report import PCA, PROJECTIONS


def parse_search(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of `search`: `folders`, and either `query` or `queries`.

    Raises:
        UsageError: The arguments are wrong.
    """
    parser = Parser(
        "search",
        "Prints the documents whose vectors are nearest to a query's.",
        usage=f"{program()} search DIR... QUERY [flags]",
    )
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="DIR... QUERY",
        help="runs' outputs, folders of outputs or globs; then the query, in quotes",
    )
    parser.add_argument(
        "--queries", metavar="FILE", action=Once, help="with one query a line, instead of QUERY"
    )
    parser.add_argument("--k", type=int, default=10, help="number of hits (default: 10)")
    parser.add_argument("--model", help="where the model is, if it was moved")
    parser.add_argument("--prompt", help="before the query (default: as the output records)")
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each query")
    given = parser.parse_intermixed_args(arguments)
    if not given.folders:
        parser.error("DIR is missing: give the output of a run")
    given.query = None
    if given.queries is None:
        if len(given.folders) == 1:
            parser.error("QUERY is missing: give it behind the output, in quotes")
        given.query = given.folders.pop()
        if not given.query.strip():
            parser.error("QUERY must not be blank")
    if given.k < 1:
        parser.error(f"--k must be at least 1, got {given.k}")
    return given


def parse_verify(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of `verify`: `output` and `repair`; UsageError if it is wrong."""
    parser = Parser("verify", "Compares every file of an output with the block record of its part.")
    parser.add_argument("output", metavar="DIR", help="a run's output")
    parser.add_argument(
        "--repair", action="store_true", help="compute missing and damaged parts again"
    )
    return parser.parse_args(arguments)


def parse_card(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of `card`: `output`; UsageError if it is wrong."""
    parser = Parser("card", "Writes README.md, which describes a run's vectors.")
    parser.add_argument("output", metavar="DIR", help="a run's output")
    return parser.parse_args(arguments)


def parse_report(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of `report`: `folder`, `output`, `texts` and `projection`.

    Raises:
        UsageError: The arguments are wrong.
    """
    parser = Parser("report", "Writes report.html, which shows a finished run and its vectors.")
    parser.add_argument("folder", metavar="DIR", help="a run's output, local or gs://")
    parser.add_argument(
        "--output", metavar="FILE", help="where to write (default: report.html in DIR)"
    )
    parser.add_argument(
        "--texts",
        action="store_true",
        help="show the texts of documents and rejected records, read from the run's input",
    )
    parser.add_argument(
        "--projection",
        choices=PROJECTIONS,
        default=PCA,
        help="the map: pca, or also tsne, which needs openTSNE (default: pca)",
    )
    return parser.parse_args(arguments)


def parse_watch(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line of `watch`; UsageError if it is wrong.

    Gives `output`, `once`, `json`, and `interval` in seconds.
    """
    parser = Parser("watch", "Shows how far a job is, on any runner, from what it has written.")
    parser.add_argument(
        "output", metavar="DIR", help="output of embed, tokenize, cluster or dedup, local or gs://"
    )
    parser.add_argument("--once", action="store_true", help="show it once, do not wait for the end")
    parser.add_argument("--json", action="store_true", help="print JSON, a line each time")
    parser.add_argument(
        "--interval", type=float, default=5.0, metavar="SECONDS", help="between looks (default: 5)"
    )
    given = parser.parse_args(arguments)
    if not 0 < given.interval < math.inf:
        parser.error(f"--interval must be more than 0 seconds, got {given.interval:g}")
    return given
