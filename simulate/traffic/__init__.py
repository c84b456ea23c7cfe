"""What a simulated cluster sends."""
