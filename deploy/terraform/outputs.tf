output "variables_env" {
  description = "Content of deploy/dataflow/variables.env; add INPUT and what else you need."
  value       = <<-EOT
    PROJECT=${var.project}
    REGION=${var.region}
    BUCKET=gs://${google_storage_bucket.work.name}
    REPOSITORY=${local.repository}
    OUTPUT=gs://${google_storage_bucket.vectors.name}/vectors
    MAX_WORKERS=${var.max_workers}
    SERVICE_ACCOUNT=${google_service_account.worker.email}
    BUILD_ACCOUNT=${google_service_account.builder.email}
    SUBNETWORK=${local.subnetwork}
  EOT
}
