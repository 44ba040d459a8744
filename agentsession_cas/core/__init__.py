"""The format: JSON, hashes, entries, the tree, settings, contexts, calls, and the store's byte formats. No I/O."""
