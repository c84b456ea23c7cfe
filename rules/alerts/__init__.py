"""The alert rules, a module each; a module is named as its rule."""
