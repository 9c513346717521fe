# Least privilege: roles are on buckets, dataset, repository and account; on the project only those that exist there alone.

# The workers, and the machine that starts a template's job.
resource "google_service_account" "worker" {
  project      = var.project
  account_id   = "${var.name}-worker"
  display_name = "Workers of bert-embed"
  depends_on   = [google_project_service.service]
}

# What launches the job of a day.
resource "google_service_account" "scheduler" {
  project      = var.project
  account_id   = "${var.name}-scheduler"
  display_name = "Schedule of bert-embed"
  depends_on   = [google_project_service.service]
}

# What Cloud Build builds images as.
resource "google_service_account" "builder" {
  project      = var.project
  account_id   = "${var.name}-builder"
  display_name = "Builds of bert-embed"
  depends_on   = [google_project_service.service]
}

resource "google_project_iam_member" "worker" {
  for_each = toset(concat(
    ["roles/dataflow.worker", "roles/dataflow.developer"],
    local.uses_bigquery ? ["roles/bigquery.jobUser", "roles/bigquery.readSessionUser"] : [],
  ))
  project = var.project
  role    = each.value
  member  = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker" {
  for_each = {
    work    = google_storage_bucket.work.name
    vectors = google_storage_bucket.vectors.name
  }
  bucket = each.value
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member
}

# A template's launcher looks at the bucket itself before it stages files there.
resource "google_storage_bucket_iam_member" "launcher" {
  bucket = google_storage_bucket.work.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker_input" {
  for_each = var.input_buckets
  bucket   = each.value
  role     = "roles/storage.objectViewer"
  member   = google_service_account.worker.member
}

resource "google_artifact_registry_repository_iam_member" "worker" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member
}

resource "google_bigquery_dataset_iam_member" "worker" {
  count      = var.dataset == "" ? 0 : 1
  project    = var.project
  dataset_id = google_bigquery_dataset.vectors[0].dataset_id
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.worker.member
}

resource "google_bigquery_dataset_iam_member" "worker_input" {
  for_each   = var.input_datasets
  project    = var.project
  dataset_id = each.value
  role       = "roles/bigquery.dataViewer"
  member     = google_service_account.worker.member
}

# The machine that starts a template's job names the account of its workers, which is its own.
resource "google_service_account_iam_member" "worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.worker.member
}

resource "google_project_iam_member" "scheduler" {
  project = var.project
  role    = "roles/dataflow.developer"
  member  = google_service_account.scheduler.member
}

resource "google_service_account_iam_member" "scheduler" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.scheduler.member
}

resource "google_storage_bucket_iam_member" "scheduler" {
  bucket = google_storage_bucket.work.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.scheduler.member
}

resource "google_artifact_registry_repository_iam_member" "builder" {
  project    = var.project
  location   = var.region
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}

resource "google_storage_bucket_iam_member" "builder" {
  bucket = google_storage_bucket.work.name
  role   = "roles/storage.objectUser"
  member = google_service_account.builder.member
}

resource "google_project_iam_member" "builder" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}
