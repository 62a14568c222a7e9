"""How commands speak: colours, progress, lines in and lines out."""
