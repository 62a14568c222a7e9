"""What a command raises when it was asked for something that cannot be done."""


class UsageError(Exception):
    """The user asked for something impossible; the message is one sentence that says what to do.

    `main` prints it as `coterie: <sentence>` and exits with 2. A bug must not end as one of these.
    """
