"""The sources of jobs, a module a type of `job_sources`, named as it, with `source` that makes one of its settings."""
