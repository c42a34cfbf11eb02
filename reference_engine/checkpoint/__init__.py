"""Make random checkpoints in the official layout, and look into any."""
