"""Rules as Grafana reads them: provisioning files, templates, notifications."""
