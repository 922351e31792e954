"""Many searches at once: a study from YAML, its folder, and the processes that work on it."""
