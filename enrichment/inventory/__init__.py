"""Nodes from where they stand: a module a type of `inventory.sources`, named as the type, with ``ask(settings)``."""
