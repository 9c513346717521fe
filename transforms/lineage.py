"""Reports to Beam what a run reads and writes in Google Cloud, for Dataplex to show.

Beam's own sources and sinks do this; ours read and write with clients of their own.
https://cloud.google.com/dataflow/docs/guides/lineage
"""

from collections.abc import Iterable

from apache_beam.metrics.metric import Lineage

from bert_embed.storage.gcs import SCHEME
from bert_embed.storage.globs import fixed_folder, is_glob
from bert_embed.transforms.bigquery.client import looks_like_table, table_name


def report_lineage(sources: Iterable[str], sinks: Iterable[str]) -> None:
    """Adds places to the lineage metrics of the step that runs; it must run on a worker.

    Args:
        sources: Files, folders, globs or tables, as the command line names them. Local ones are
            left out; of a glob the folder counts.
        sinks: Likewise.
    """
    for label, places in ((Lineage.SOURCE, sources), (Lineage.SINK, sinks)):
        for place in places:
            _report(Lineage(label), place)


def _report(lineage: Lineage, place: str) -> None:
    if place.startswith(SCHEME):
        folder = fixed_folder(place) if is_glob(place) else place
        bucket, _, name = folder.removeprefix(SCHEME).partition("/")
        lineage.add("gcs", bucket, *([name] if name else []), last_segment_sep="/")
    elif looks_like_table(place):
        table = table_name(place, "input")
        lineage.add("bigquery", table.project, table.dataset, table.table)
