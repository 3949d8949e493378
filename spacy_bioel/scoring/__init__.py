"""Protocols, scorers, and the evaluation and tuning of pipelines."""
