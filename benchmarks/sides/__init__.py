"""The engines under measurement, one process each; these modules need no package but the engine's own and numpy."""
