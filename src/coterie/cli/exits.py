"""What the exit status of a command says. `docs/operate/operations.md` has the same table."""

DONE = 0
NOT_DONE = 1
"""The command surely had no effect: refused, not possible at present, or the group is not well."""
MISUSE = 2
"""The command, its options or the configuration are wrong; trying again changes nothing."""
UNKNOWN = 3
"""Nobody could say by the deadline whether the call was executed."""
FAILED = 4
"""The method was executed and raised an error of its own."""
TAKEN = 69
"""A port or folder is in use; it may be free later."""
BUG = 70
STORAGE = 74
"""The journal could not be written; nothing that was promised is lost."""
# What a shell reports for a program that died of SIGINT or SIGPIPE.
INTERRUPTED = 130
READER_GONE = 141

TABLE = """exit status:
  0    done
  1    surely not done, or the group is not well
  2    wrong command, option or configuration
  3    outcome unknown: the call may have been executed, but never twice
  4    the method itself raised an error
  69   a port or a folder is in use
  70   a bug in Coterie
  74   the journal could not be written
  130  interrupted
"""
