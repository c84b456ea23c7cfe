"""Alert rules as data: their encoding for Grafana, and an evaluator of our own."""
