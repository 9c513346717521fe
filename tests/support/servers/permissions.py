"""What an account with some roles may do: what requests need, and what roles have."""

import json
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

_OF_OBJECTS = {"storage.objects.get", "storage.objects.list"}
_OF_TABLES = {"bigquery.datasets.get", "bigquery.tables.get", "bigquery.tables.getData"}
# Of the permissions of Google's predefined roles those that requests of ours need, by
# https://cloud.google.com/iam/docs/roles-permissions.
ROLES = {
    "storage.objectViewer": _OF_OBJECTS,
    "storage.objectUser": {*_OF_OBJECTS, "storage.objects.create", "storage.objects.delete"},
    "storage.legacyBucketReader": {"storage.buckets.get", "storage.objects.list"},
    "bigquery.jobUser": {"bigquery.jobs.create"},
    "bigquery.readSessionUser": {"bigquery.readsessions.create"},
    "bigquery.user": {"bigquery.jobs.create", "bigquery.datasets.create"},
    "bigquery.resourceViewer": {"bigquery.jobs.get"},
    "bigquery.dataViewer": _OF_TABLES,
    "bigquery.dataEditor": {
        *(*_OF_TABLES, "bigquery.tables.create", "bigquery.tables.update"),
        *("bigquery.tables.updateData", "bigquery.tables.delete"),
    },
    "dataflow.developer": {"dataflow.jobs.create", "dataflow.jobs.get"},
    "iam.serviceAccountUser": {"iam.serviceAccounts.actAs"},
}


@dataclass
class Account:
    """What an account may do: permissions by the resource on which a role is granted.

    A resource is `gs://BUCKET`, `DATASET`, `project` or `account`.
    """

    granted: dict[str, set[str]] = field(default_factory=dict)

    def grant(self, resource: str, *roles: str) -> "Account":
        for role in roles:
            self.granted.setdefault(resource, set()).update(ROLES[role])
        return self

    def lacks(self, resource: str, permission: str) -> str | None:
        """The permission, unless it is there; whoever made our data set of queries owns it."""
        is_owner = resource.startswith("_bert_embed_")
        return None if is_owner or permission in self.granted.get(resource, ()) else permission

    def storage(self, method: str, path: str) -> int | tuple[int, bytes] | None:
        """What Cloud Storage answers where the account decides; None: it may go on."""
        parts = urlsplit(path)
        bucket = re.search(r"/b/([^/?]+)", parts.path)
        name = f"gs://{bucket[1] if bucket else ''}"
        if parts.path.endswith("/iam/testPermissions"):
            return self._held(name, parse_qs(parts.query)["permissions"])
        missing = self.lacks(name, _storage_permission(method, parts.path))
        if missing is None or bucket is None:
            return None
        message = f"x@y does not have {missing} access to the Google Cloud Storage bucket."
        return 403, json.dumps({"error": {"code": 403, "message": message}}).encode()

    def _held(self, resource: str, asked: list[str]) -> tuple[int, bytes]:
        held = [one for one in asked if self.lacks(resource, one) is None]
        return 200, json.dumps({"permissions": held}).encode()

    def bigquery(self, method: str, path: str, body: bytes) -> str | None:
        """The permission that a request for BigQuery needs and the account lacks."""
        for resource, permission in _bigquery_permissions(method, path, body):
            if missing := self.lacks(resource, permission):
                return missing
        return None

    def project(self, path: str, asked: list[str]) -> bytes:
        """What the project, or a service account, answers when it is asked for permissions."""
        return self._held("account" if "/serviceAccounts/" in path else "project", asked)[1]


def _storage_permission(method: str, path: str) -> str:
    if "/upload/" in path or "/rewriteTo/" in path or "/copyTo/" in path:
        return "storage.objects.create"
    if method == "DELETE":
        return "storage.objects.delete"
    if path.endswith("/o"):
        return "storage.objects.list"
    return "storage.objects.get" if "/o/" in path else "storage.buckets.get"


def _bigquery_permissions(method: str, path: str, body: bytes) -> list[tuple[str, str]]:
    dataset = re.search(r"/datasets/(\w+)", path)
    if method == "TEST":
        return [(dataset[1] if dataset else "", body.decode())]
    name, table = (dataset[1] if dataset else "", "/tables/" in path)
    if re.search(r"/(jobs|queries)/?(\?|$)", path):
        if method != "POST":
            return []
        asked = json.loads(body)["configuration"]
        needed = [("project", "bigquery.jobs.create")]
        for one in re.findall(r"FROM `[\w-]+\.(\w+)\.", str(asked.get("query", {}).get("query"))):
            needed.append((one, "bigquery.tables.getData"))
        for kind in ("load", "copy"):
            if kind in asked:
                target = asked[kind]["destinationTable"]["datasetId"]
                needed.append((target, "bigquery.tables.updateData"))
        return needed
    if not dataset:
        return [("project", "bigquery.datasets.create")] if method == "POST" else []
    verbs = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "update"}
    if path.partition("?")[0].endswith("/data"):
        return [(name, "bigquery.tables.getData")]
    kind = "tables" if table or method == "POST" else "datasets"
    return [(name, f"bigquery.{kind}.{verbs[method]}")]
