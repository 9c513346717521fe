# The schedule of a Cloud Run job, which deploy/cloud_run/job.yaml describes: it catches up days that were missed, and
# compares each day with those before it.
resource "google_cloud_scheduler_job" "cloud_run" {
  count            = var.cloud_run_job != "" && var.cloud_run_scheduled ? 1 : 0
  project          = var.project
  region           = var.region
  name             = var.cloud_run_job
  schedule         = var.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "180s"
  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/projects/${var.project}/locations/${var.region}/jobs/${var.cloud_run_job}:run"
    oauth_token {
      service_account_email = google_service_account.scheduler.email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }
}

# The job must exist by now, and it mounts the secret below, which must have a version by then: hence two applies.
resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  count    = var.cloud_run_job != "" && var.cloud_run_scheduled ? 1 : 0
  project  = var.project
  location = var.region
  name     = var.cloud_run_job
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_secret_manager_secret" "settings" {
  count     = var.cloud_run_job == "" ? 0 : 1
  project   = var.project
  secret_id = "${var.name}-settings"
  labels    = var.labels
  replication {
    auto {}
  }
  depends_on = [google_project_service.service]
}

resource "google_secret_manager_secret_iam_member" "worker" {
  count     = var.cloud_run_job == "" ? 0 : 1
  project   = var.project
  secret_id = google_secret_manager_secret.settings[0].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.worker.member
}
