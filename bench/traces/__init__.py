"""Recorded training jobs, played as flow records: operations of a trace on hosts and rails, with faults and truth."""
