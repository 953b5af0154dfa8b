"""Training of the embedded demo model: data, tokenizer, model, training loop, export and evaluation."""
