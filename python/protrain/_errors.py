class Error(RuntimeError):
    """What failed, where, and what to do."""

    __module__ = 'protrain'


class UsageError(Error, ValueError):
    """An argument has a value that does not exist."""

    __module__ = 'protrain'


class DoesNotFit(Error, MemoryError):
    """No plan fits into the memory."""

    __module__ = 'protrain'


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run. `out` is its folder if a checkpoint was written, else None."""

    __module__ = 'protrain'

    def __init__(self, sentence, out=None):
        super().__init__(sentence)
        self.out = out
