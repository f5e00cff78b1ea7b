"""The GPU stanza in a compose file that people wrote themselves: lines put in, and taken out again.

Nothing else in the file changes by a byte. `patch` is the pure core, text in and text out; `file`
reads and writes, `check` asks the compose tool, `command` is the whole of `dshpc compose patch`.
"""
