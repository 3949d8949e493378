"""Networks and losses of the light path, in PyTorch."""
