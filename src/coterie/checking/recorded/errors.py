"""What is raised for a file that is no history."""


class NoHistory(ValueError):
    """A file cannot be read as a history; the message is a sentence, `line` says where."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line

    def at(self, path: str) -> str:
        """Give the sentence with its place, as editors and compilers write it."""
        return f"{path}:{self.line}: {self.message}" if self.line else f"{path}: {self.message}"
