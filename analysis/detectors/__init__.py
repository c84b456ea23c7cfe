"""Every verdict: an algorithm, and beside it the study that runs it in the analyser."""
