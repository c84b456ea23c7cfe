"""What the stored traffic means: jobs, baselines, dropout, first contact."""
