"""Check ids, compare releases of a knowledge base, and update annotations and links."""
