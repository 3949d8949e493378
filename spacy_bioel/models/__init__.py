"""Networks as thinc models, with their word pieces, weights and inference in NumPy."""
