"""The `bioel_mentions` pipe: a trained detector, and the selection of mentions from its spans."""
