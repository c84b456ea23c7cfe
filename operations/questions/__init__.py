"""Questions to the flow archive: conversations and management sessions."""
