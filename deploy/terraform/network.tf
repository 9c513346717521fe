# Workers have private addresses, and reach Google's services without NAT: the image brings every package.
resource "google_compute_network" "jobs" {
  count                   = var.subnetwork == "" ? 1 : 0
  project                 = var.project
  name                    = var.name
  auto_create_subnetworks = false
  depends_on              = [google_project_service.service]
}

resource "google_compute_subnetwork" "jobs" {
  count                    = var.subnetwork == "" ? 1 : 0
  project                  = var.project
  name                     = var.name
  region                   = var.region
  network                  = google_compute_network.jobs[0].id
  ip_cidr_range            = "10.28.0.0/20"
  private_ip_google_access = true
}

# Workers talk to each other where data is dealt out among them.
resource "google_compute_firewall" "workers" {
  count       = var.subnetwork == "" ? 1 : 0
  project     = var.project
  name        = "${var.name}-workers"
  network     = google_compute_network.jobs[0].id
  direction   = "INGRESS"
  source_tags = ["dataflow"]
  target_tags = ["dataflow"]
  allow {
    protocol = "tcp"
    ports    = ["12345-12346"]
  }
}
