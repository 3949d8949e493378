"""Train a pipeline further, tune it on development documents, and quantise it."""
