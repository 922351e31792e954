"""State tracking: checkpoints in the coordinates of the group that is tracked."""
