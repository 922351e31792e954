"""Whether a folder of checkpoints is what it says it is."""
