"""Commands that use gold documents to evaluate, tune and train pipelines, and to write cards."""
