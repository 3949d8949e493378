"""Linkers that score mentions in their context. No module outside this folder imports it."""
