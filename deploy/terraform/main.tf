locals {
  services = [
    "artifactregistry.googleapis.com",
    "bigquery.googleapis.com",
    "bigquerystorage.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "dataflow.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
  ]
  uses_bigquery = var.dataset != "" || length(var.input_datasets) > 0
  # A shared VPC's subnetwork belongs to a host project, and is named by its whole address.
  subnetwork = var.subnetwork != "" ? var.subnetwork : "regions/${var.region}/subnetworks/${google_compute_subnetwork.jobs[0].name}"
  repository = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

resource "google_project_service" "service" {
  for_each           = toset(local.services)
  project            = var.project
  service            = each.value
  disable_on_destroy = false
}

resource "google_artifact_registry_repository" "images" {
  project       = var.project
  location      = var.region
  repository_id = var.name
  format        = "DOCKER"
  labels        = var.labels
  kms_key_name  = var.kms_key == "" ? null : var.kms_key
  description   = "Images of bert-embed's workers and templates."
  cleanup_policies {
    id     = "keep-newest"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  # The schedule goes on with its image, however many are built after it.
  dynamic "cleanup_policies" {
    for_each = var.image_tag == "" ? [] : [var.image_tag]
    content {
      id     = "keep-scheduled"
      action = "KEEP"
      condition {
        tag_state    = "TAGGED"
        tag_prefixes = [cleanup_policies.value]
      }
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "7776000s"
    }
  }
  depends_on = [google_project_service.service]
}

# Temporary files, the model's copy for workers, and templates.
resource "google_storage_bucket" "work" {
  project                     = var.project
  name                        = "${var.project}-${var.name}-work"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  labels                      = var.labels
  dynamic "encryption" {
    for_each = var.kms_key == "" ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }
  # Dataflow warns of paid copies of deleted temporary files otherwise.
  soft_delete_policy {
    retention_duration_seconds = 0
  }
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = var.keep_days
      matches_prefix = ["tmp/"]
    }
  }
  depends_on = [google_project_service.service]
}

resource "google_storage_bucket" "vectors" {
  project                     = var.project
  name                        = "${var.project}-${var.name}-vectors"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  labels                      = var.labels
  dynamic "encryption" {
    for_each = var.kms_key == "" ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }
  soft_delete_policy {
    retention_duration_seconds = var.keep_deleted_days * 86400
  }
  dynamic "lifecycle_rule" {
    for_each = var.keep_vectors_days == 0 ? [] : [var.keep_vectors_days]
    content {
      action {
        type = "Delete"
      }
      condition {
        age = lifecycle_rule.value
      }
    }
  }
  depends_on = [google_project_service.service]
}

resource "google_bigquery_dataset" "vectors" {
  count      = var.dataset == "" ? 0 : 1
  project    = var.project
  dataset_id = var.dataset
  location   = var.region
  labels     = var.labels
  dynamic "default_encryption_configuration" {
    for_each = var.kms_key == "" ? [] : [var.kms_key]
    content {
      kms_key_name = default_encryption_configuration.value
    }
  }
  depends_on = [google_project_service.service]
}
