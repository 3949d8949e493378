"""Plugins: folders that the rest of the package never imports, and that can be deleted."""
