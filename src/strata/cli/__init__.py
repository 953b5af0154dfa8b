"""The command line: `strata serve`, `chat`, `generate`, `inspect`, `engine`."""
