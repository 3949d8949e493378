"""Linking on a Spark cluster."""
