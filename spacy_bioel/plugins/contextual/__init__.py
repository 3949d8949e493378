"""Linkers that score mentions in context. No module outside this folder may import them."""
