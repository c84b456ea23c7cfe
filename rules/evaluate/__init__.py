"""Rules evaluated by ourselves: the evaluator, rule cases, backtests."""
