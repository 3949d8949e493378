"""Check the ids in files against knowledge bases."""
