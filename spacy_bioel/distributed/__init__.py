"""Bulk linking, with the same rows from one process, worker processes and Spark."""
