"""Dictionary lookup: find knowledge base names in texts, without training."""
