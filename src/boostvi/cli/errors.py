"""Exit codes, and the errors that end a command with one of them."""

from __future__ import annotations

OK, BELOW_REQUIRED, MISTAKE, NOT_WRITTEN, FAULT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 70, 130, 141

EXIT_CODES = f"""exit codes:
  {OK:>3}  it worked
  {BELOW_REQUIRED:>3}  the verdict is below what --require asked for
  {MISTAKE:>3}  a mistake in the command, the model or the data; the message says which
  {NOT_WRITTEN:>3}  a file could not be written in the end, because the disk is full, say
  {FAULT:>3}  a fault of boostvi itself; --debug shows where
  {INTERRUPTED:>3}  Ctrl-C; what was fitted is kept, and `boostvi resume` goes on
  {PIPE_CLOSED:>3}  the reader of the output (`| head`) left early"""


class UsageError(Exception):
    """Something the person at the keyboard can put right."""

    code = MISTAKE


class OutputError(Exception):
    """The work is done, but a file of it could not be written."""

    code = NOT_WRITTEN
