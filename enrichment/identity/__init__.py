"""Who was signed in at which address."""
