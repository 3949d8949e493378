"""The networks as thinc models, their word pieces and weights, and their inference in NumPy."""
