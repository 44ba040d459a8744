"""Keeping a store: finding what is wrong with it, and saying what it holds and saves (store.md A12, cli.md)."""
