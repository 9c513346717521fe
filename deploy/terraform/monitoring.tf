locals {
  # Jobs of the schedule begin with the module's name, those of `make dataflow` with bert-embed.
  jobs    = "resource.type = \"dataflow_job\" AND resource.label.job_name = monitoring.regex.full_match(\"(${var.name}|bert-embed)-.*\")"
  counter = "metric.type = \"dataflow.googleapis.com/job/user_counter\" AND ${local.jobs}"
}

resource "google_monitoring_alert_policy" "failed" {
  project               = var.project
  display_name          = "${var.name}: a job failed"
  combiner              = "OR"
  notification_channels = var.notification_channels
  conditions {
    display_name = "failed"
    condition_threshold {
      filter          = "metric.type = \"dataflow.googleapis.com/job/is_failed\" AND ${local.jobs}"
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  documentation {
    content = "The next launch continues the oldest day that is not complete, the same command its own: finished blocks are kept. run.json in the output says why."
  }
  user_labels = var.labels
  depends_on  = [google_project_service.service]
}

resource "google_monitoring_alert_policy" "rejected" {
  project               = var.project
  display_name          = "${var.name}: records were rejected"
  combiner              = "OR"
  notification_channels = var.notification_channels
  conditions {
    display_name = "rejected"
    condition_threshold {
      filter          = "${local.counter} AND metric.label.metric_name = \"rejected\""
      comparison      = "COMPARISON_GT"
      threshold_value = var.max_rejected
      duration        = "0s"
      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  documentation {
    content = "rejected/ in the output has each record's place and reason."
  }
  user_labels = var.labels
  depends_on  = [google_project_service.service]
}

resource "google_monitoring_alert_policy" "no_run" {
  count                 = var.image_tag == "" ? 0 : 1
  project               = var.project
  display_name          = "${var.name}: no run in 26 hours"
  combiner              = "OR"
  notification_channels = var.notification_channels
  conditions {
    display_name = "no run"
    condition_prometheus_query_language {
      query = "absent_over_time(dataflow_googleapis_com:job_elapsed_time{monitored_resource=\"dataflow_job\",job_name=\"${var.name}-daily\"}[26h])"
      # No job has written this metric yet in a new project.
      disable_metric_validation = true
    }
  }
  documentation {
    content = "Nothing was launched: see the schedule's log. It is so, too, until the first launch."
  }
  user_labels = var.labels
  depends_on  = [google_project_service.service]
}

# A job that waits for machines, or for a worker that hangs, does not fail by itself.
resource "google_monitoring_alert_policy" "long" {
  project               = var.project
  display_name          = "${var.name}: a job runs for over ${var.max_hours} hours"
  combiner              = "OR"
  notification_channels = var.notification_channels
  conditions {
    display_name = "long"
    condition_threshold {
      filter          = "metric.type = \"dataflow.googleapis.com/job/elapsed_time\" AND ${local.jobs}"
      comparison      = "COMPARISON_GT"
      threshold_value = var.max_hours * 3600
      duration        = "0s"
      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  documentation {
    content = "A cancelled job is continued by the same command."
  }
  user_labels = var.labels
  depends_on  = [google_project_service.service]
}

resource "google_monitoring_dashboard" "runs" {
  project        = var.project
  dashboard_json = file("${path.module}/dashboard.json")
  depends_on     = [google_project_service.service]
}
