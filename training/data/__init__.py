"""Training data: text from public registries and books, and generated conversations."""
