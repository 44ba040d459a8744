"""Sessions that travel: as files, and between stores."""
