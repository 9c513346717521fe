"""Group the documents of an output by k-means on their vectors.

Usage, from the clone's folder: python -m examples.clusters OUTPUT FILE.parquet [NUMBER]
It needs `pip install scikit-learn`, and the vectors must fit into memory. Each document gets a row:
`id`, `cluster`, and `cosine`, of its vector and the centre. Of each cluster the number of documents
and those nearest to its centre are printed.
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.cluster import MiniBatchKMeans
from sklearn.preprocessing import normalize

import bert_embed


def main(output: str, file: str, number: str = "20") -> None:
    """Writes the rows, and prints the clusters, the largest first."""
    ids, vectors = bert_embed.read(output)
    vectors = normalize(vectors, copy=False)
    clusters = min(int(number), len(ids))
    found = MiniBatchKMeans(clusters, n_init=3, random_state=0).fit(vectors)
    centres = normalize(found.cluster_centers_)
    cosines = np.vecdot(vectors, centres[found.labels_])
    pq.write_table(pa.table({"id": ids, "cluster": found.labels_, "cosine": cosines}), file)
    sizes = np.bincount(found.labels_, minlength=len(centres))
    for cluster in np.argsort(-sizes, kind="stable"):
        members = np.flatnonzero(found.labels_ == cluster)
        middle = members[np.argsort(-cosines[members])][:3]
        names = ", ".join(str(ids[row]) for row in middle)
        print(f"cluster {cluster}: {sizes[cluster]} documents, {names}")


if __name__ == "__main__":
    main(*sys.argv[1:])
