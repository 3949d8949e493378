"""Measure a pipeline, and describe it, its errors and its corpora."""
