"""The boards, a module each."""
