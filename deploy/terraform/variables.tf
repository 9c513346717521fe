variable "project" {
  description = "Project that pays for the jobs."
  type        = string
}

variable "region" {
  description = "Where buckets, images and jobs are; one region for all."
  type        = string
}

variable "name" {
  description = "Begins the name of everything that is created."
  type        = string
  default     = "bert-embed"
  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{2,18}[a-z0-9]$", var.name))
    error_message = "The name must be 4 to 20 lower-case letters, digits and dashes, beginning with a letter."
  }
}

variable "submitters" {
  description = "Who may submit jobs, such as user:me@example.com; whoever owns the project may anyway."
  type        = set(string)
  default     = []
}

variable "input_buckets" {
  description = "Existing buckets that the jobs read."
  type        = set(string)
  default     = []
}

variable "input_datasets" {
  description = "Existing BigQuery datasets that the jobs read."
  type        = set(string)
  default     = []
}

variable "dataset" {
  description = "BigQuery dataset to create for vectors; none if empty."
  type        = string
  default     = ""
}

variable "image_tag" {
  description = "Tag of the template's image, as `make dataflow DO=template` printed it; without one nothing is scheduled."
  type        = string
  default     = ""
}

variable "cloud_run_job" {
  description = "Name of the Cloud Run job of deploy/cloud_run/job.yaml: creates the secret of its settings; none if empty."
  type        = string
  default     = ""
}

variable "cloud_run_scheduled" {
  description = "Whether that job is started on schedule; true once it exists."
  type        = bool
  default     = false
}

variable "schedule" {
  description = "When a job is launched, in cron's notation, UTC: a later launch of a day embeds what an earlier one could not."
  type        = string
  default     = "17 2,14 * * *"
}

variable "parameters" {
  description = "Parameters of the template for the scheduled job: at least input and output, which may hold {yesterday}."
  type        = map(string)
  default     = {}
}

variable "catch_up_days" {
  description = "A launch embeds the oldest of so many days, up to its own, that has input and no complete output."
  type        = number
  default     = 7
}

variable "max_workers" {
  description = "Most workers of a scheduled job."
  type        = number
  default     = 20
}

variable "max_rejected" {
  description = "Rejected records of a job, above which somebody is told."
  type        = number
  default     = 0
}

variable "notification_channels" {
  description = "Names of Cloud Monitoring channels that alerts go to."
  type        = list(string)
  default     = []
}

variable "keep_days" {
  description = "Days after which temporary files are deleted; a job that runs longer needs more."
  type        = number
  default     = 14
}

variable "keep_vectors_days" {
  description = "Days after which files in the bucket of vectors are deleted; 0 keeps them."
  type        = number
  default     = 0
}

variable "keep_deleted_days" {
  description = "Days for which replaced and deleted files in the bucket of vectors can be restored, and are billed: 0, or 7 to 90."
  type        = number
  default     = 7
}

variable "max_hours" {
  description = "Hours of a job, above which somebody is told."
  type        = number
  default     = 24
}

variable "subnetwork" {
  description = "Existing subnetwork of the workers, such as a shared VPC's, by its whole address; one is created if empty."
  type        = string
  default     = ""
}

variable "kms_key" {
  description = "Key of Cloud KMS, in the same region, for buckets, dataset, images and scheduled jobs; Google's keys if empty."
  type        = string
  default     = ""
}

variable "labels" {
  description = "Labels of everything that can have them, for bills."
  type        = map(string)
  default     = {}
}
