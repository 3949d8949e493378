"""The pipe `bioel_mentions`: a trained detector, and the selection among its spans."""
