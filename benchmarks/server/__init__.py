"""The HTTP server under load, against the same engine without it."""
