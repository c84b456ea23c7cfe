"""Alert rules as data, their Grafana encoding, and an evaluator with Grafana's semantics."""
