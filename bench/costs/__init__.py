"""What one part costs, on its own."""
