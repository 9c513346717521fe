# People who run `make dataflow`: they build images, submit jobs that run as the workers' account, and read results.
locals {
  submitter_roles = concat(
    ["roles/dataflow.developer", "roles/cloudbuild.builds.editor", "roles/serviceusage.serviceUsageConsumer"],
    local.uses_bigquery ? ["roles/bigquery.user"] : [],
  )
  submitter_buckets = merge(
    { for bucket in var.input_buckets : bucket => { bucket = bucket, role = "roles/storage.objectViewer" } },
    {
      work_objects = { bucket = google_storage_bucket.work.name, role = "roles/storage.objectUser" }
      work_bucket  = { bucket = google_storage_bucket.work.name, role = "roles/storage.legacyBucketReader" }
      vectors      = { bucket = google_storage_bucket.vectors.name, role = "roles/storage.objectUser" }
    },
  )
}

resource "google_project_iam_member" "submitter" {
  for_each   = { for each in setproduct(var.submitters, local.submitter_roles) : join(" ", each) => each }
  project    = var.project
  role       = each.value[1]
  member     = each.value[0]
  depends_on = [google_project_service.service]
}

resource "google_storage_bucket_iam_member" "submitter" {
  for_each   = { for each in setproduct(var.submitters, keys(local.submitter_buckets)) : join(" ", each) => each }
  bucket     = local.submitter_buckets[each.value[1]].bucket
  role       = local.submitter_buckets[each.value[1]].role
  member     = each.value[0]
  depends_on = [google_project_service.service]
}

resource "google_service_account_iam_member" "submitter_worker" {
  for_each           = var.submitters
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

resource "google_service_account_iam_member" "submitter_builder" {
  for_each           = var.submitters
  service_account_id = google_service_account.builder.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

resource "google_artifact_registry_repository_iam_member" "submitter" {
  for_each   = var.submitters
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = each.value
}

resource "google_bigquery_dataset_iam_member" "submitter" {
  for_each   = var.dataset == "" ? [] : var.submitters
  project    = var.project
  dataset_id = google_bigquery_dataset.vectors[0].dataset_id
  role       = "roles/bigquery.dataViewer"
  member     = each.value
}

resource "google_bigquery_dataset_iam_member" "submitter_input" {
  for_each   = { for each in setproduct(var.submitters, var.input_datasets) : join(" ", each) => each }
  project    = var.project
  dataset_id = each.value[1]
  role       = "roles/bigquery.dataViewer"
  member     = each.value[0]
  depends_on = [google_project_service.service]
}
