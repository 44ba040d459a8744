"""One session's files and the handles on them: journal, log, recovery, reader, writer (store.md Part B)."""
