# The body is the same every day: {yesterday} and {date:%Y/%m/%d} in the parameters become days at launch. With one time
# a day, a day begins at that time, so that a retry or a launch by hand is of the same day until then; else at midnight,
# UTC. While a job of this name runs, a launch is refused. The next one embeds the oldest day of catch_up_days that has
# input and no complete output, or ends as a job that does nothing.
locals {
  at_minute_and_hour = regexall("^([0-9]+) ([0-9]+) ", var.schedule)
  day_begins         = length(local.at_minute_and_hour) == 0 ? "00:00" : format("%02d:%02d", local.at_minute_and_hour[0][1], local.at_minute_and_hour[0][0])
}

resource "google_cloud_scheduler_job" "daily" {
  count            = var.image_tag == "" ? 0 : 1
  project          = var.project
  region           = var.region
  name             = "${var.name}-daily"
  schedule         = var.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "320s"
  retry_config {
    retry_count          = 3
    min_backoff_duration = "60s"
  }
  http_target {
    http_method = "POST"
    uri         = "https://dataflow.googleapis.com/v1b3/projects/${var.project}/locations/${var.region}/flexTemplates:launch"
    headers     = { "Content-Type" = "application/json" }
    body = base64encode(jsonencode({
      launchParameter = {
        jobName              = "${var.name}-daily"
        containerSpecGcsPath = "gs://${google_storage_bucket.work.name}/templates/bert-embed-cpu-${var.image_tag}.json"
        parameters = merge(var.parameters, {
          today               = local.day_begins
          catch_up_days       = var.catch_up_days
          sdk_container_image = "${local.repository}/bert-embed-cpu-template:${var.image_tag}"
        })
        environment = merge(
          {
            serviceAccountEmail = google_service_account.worker.email
            tempLocation        = "gs://${google_storage_bucket.work.name}/tmp"
            maxWorkers          = var.max_workers
            launcherMachineType = "n2-standard-4" # lists the input, reads footers, may import a model
            subnetwork          = local.subnetwork
            ipConfiguration     = "WORKER_IP_PRIVATE"
          },
          length(var.labels) == 0 ? {} : { additionalUserLabels = var.labels },
          var.kms_key == "" ? {} : { kmsKeyName = var.kms_key },
        )
      }
    }))
    oauth_token {
      service_account_email = google_service_account.scheduler.email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }
  lifecycle {
    precondition {
      condition     = contains(keys(var.parameters), "input") && contains(keys(var.parameters), "output")
      error_message = "parameters must name input and output."
    }
  }
}
