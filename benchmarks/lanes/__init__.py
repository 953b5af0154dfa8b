"""Many conversations at once against one at a time, on the real engine process."""
