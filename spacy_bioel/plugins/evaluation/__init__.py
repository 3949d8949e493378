"""What needs gold documents: figures, errors, model cards, fitted weights, further training."""
