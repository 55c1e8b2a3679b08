"""One file per method: what is learnt from a batch, and how it predicts."""
