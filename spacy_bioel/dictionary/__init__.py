"""Names of a knowledge base in texts, found without training."""
