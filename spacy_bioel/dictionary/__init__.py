"""Lookup of the names of a knowledge base in texts, without training."""
