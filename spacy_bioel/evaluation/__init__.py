"""Protocols, scorers, evaluation and tuning of pipelines."""
