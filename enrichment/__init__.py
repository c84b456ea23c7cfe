"""Who, where and known bad: look-ups on the distinct addresses of a batch, from files that the user puts there."""
