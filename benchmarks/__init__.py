"""Measurements against other engines, each one command: `python -m benchmarks.NAME`. Figures go to docs/journal.md."""
