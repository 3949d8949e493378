"""Measurements: one module a question, results as JSON in benchmarks/results/."""
