"""Asks Google whether the account that submits a job has the permissions for it."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runners.beam import BeamFlags
from bert_embed.storage.files import is_remote
from bert_embed.storage.gcs import (
    LOOK_AT_BUCKET,
    QUICK,
    SCHEME,
    held_permissions,
    service_session,
)

_OBJECTS = tuple(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list"))
# A role that has each; docs/cloud.md lists them all.
_ROLES = {
    "storage.buckets": "Storage Legacy Bucket Reader",
    "storage.objects": "Storage Object User",
    "dataflow.jobs": "Dataflow Developer",
    "iam.serviceAccounts": "Service Account User",
}


def check_permissions(flags: BeamFlags, output: str) -> None:
    """UsageError that names a permission which a Dataflow job to `output` needs and is missing.

    What Google does not answer in a few seconds counts as granted: the job itself will say it.
    """
    for what, wanted, held in _asked(flags, output):
        missing = [name for name in wanted if held is not None and name not in held]
        for name in missing[:1]:
            role = _ROLES[name.rpartition(".")[0]]
            raise UsageError(
                f"{what} lacks the permission {name} for the account that submits: give it the "
                f"role {role} there, see docs/cloud.md#roles"
            )


def _asked(
    flags: BeamFlags, output: str
) -> Iterator[tuple[str, tuple[str, ...], frozenset[str] | None]]:
    """What is asked of what, and what this account may do there; None: it is not known."""
    for setting, place in (
        ("--temp_location", flags["temp_location"]),
        ("--staging_location", flags["staging_location"]),
        ("--output", output),
    ):
        if place and is_remote(place) and place.startswith(SCHEME):
            wanted = _OBJECTS if setting == "--output" else (LOOK_AT_BUCKET, *_OBJECTS)
            bucket = place.removeprefix(SCHEME).partition("/")[0]
            yield f"{setting} {SCHEME}{bucket}", wanted, held_permissions(bucket, wanted)
    if flags["template_location"]:  # whose launcher starts no job
        return
    project, account = flags["project"], flags["service_account_email"]
    jobs = ("dataflow.jobs.create", "dataflow.jobs.get")
    place = f"cloudresourcemanager.googleapis.com/v1/projects/{project}"
    yield f"--project {project}", jobs, _held(flags, place, jobs)
    if account:
        acts = ("iam.serviceAccounts.actAs",)
        place = f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}"
        yield f"--service_account_email {account}", acts, _held(flags, place, acts)


def _held(flags: BeamFlags, place: str, wanted: tuple[str, ...]) -> frozenset[str] | None:
    import requests
    from google.auth.exceptions import GoogleAuthError

    endpoint = flags["dataflow_endpoint"] or ""
    host, _, path = place.partition("/")
    # What stands in for Dataflow stands in for these services.
    start = endpoint.rstrip("/") if "//localhost" in endpoint else f"https://{host}"
    with suppress(GoogleAuthError, requests.RequestException, ValueError):
        session = service_session()
        if session is not None:
            asked: Mapping[str, list[str]] = {"permissions": list(wanted)}
            url = f"{start}/{path}:testIamPermissions"
            answer = session.post(url, json=asked, timeout=QUICK)
            if answer.status_code == 200:
                return frozenset(answer.json().get("permissions", ()))
    return None
