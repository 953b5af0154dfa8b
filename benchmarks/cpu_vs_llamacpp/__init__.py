"""Reading and decoding on the CPU against llama.cpp, same file, interleaved."""
