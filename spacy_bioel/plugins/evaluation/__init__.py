"""Commands that need gold documents: to evaluate, tune and train pipelines, and write cards."""
