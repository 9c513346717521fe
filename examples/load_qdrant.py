"""Load an output into a collection of Qdrant, which is made if it is not there.

Usage, from the clone's folder: python -m examples.load_qdrant OUTPUT http://HOST:6333 COLLECTION
It needs `pip install qdrant-client`. Outputs that continue others are loaded in their order: points
are replaced by their key, or deleted. The first error ends it; the same command loads the rest.
"""

import json
import sys
import uuid

from qdrant_client import QdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException
from qdrant_client.models import Distance, PointIdsList, PointStruct, VectorParams

from examples.output_rows import as_json, bodies, deleted, vectors


def point_id(key: str) -> str:
    """Qdrant takes UUIDs as ids, and no texts: that of a key is always the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, key))


def load(output: str, client: QdrantClient, collection: str) -> str:
    """Loads an output; says how many rows it has."""
    rows, gone, count = vectors(output), deleted(output), 0
    if not client.collection_exists(collection):
        width = rows.projected_schema.field("embedding").type.list_size
        client.create_collection(collection, VectorParams(size=width, distance=Distance.COSINE))
    if gone:
        client.delete(collection, PointIdsList(points=[*map(point_id, gone)]), wait=True)
    for body in bodies(as_json(rows.to_batches())):
        points = [
            PointStruct(id=point_id(row["key"]), vector=row.pop("embedding"), payload=row)
            for row in map(json.loads, body)
        ]
        client.upsert(collection, points, wait=True)
        count += len(points)
    return f"{collection}: {count} points written, {len(gone)} deleted"


if __name__ == "__main__":
    try:
        print(load(sys.argv[1], QdrantClient(sys.argv[2]), sys.argv[3]))
    except (QdrantException, ApiException) as error:
        raise SystemExit(f"Qdrant refuses {sys.argv[1]}: {error}") from None
