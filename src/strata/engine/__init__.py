"""The engine process: lanes in, windows out, one line protocol.

The door is `strata.engine.process.main`. `strata.engine.protocol` imports neither numpy nor the model, so the server
uses it too.
"""
