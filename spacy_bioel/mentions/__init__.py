"""The pipe `bioel_mentions`: a trained detector, and the selection of mentions among its spans."""
