"""The HTTP server and the supervisor of the engine process. Free of torch and numpy, which a test proves."""
