"""One alert with all that is known around it, as a page that can be attached to a ticket."""
