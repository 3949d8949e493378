"""Linking in bulk: rows that one process and a cluster have in common, and Spark."""
