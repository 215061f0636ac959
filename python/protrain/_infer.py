"""Evaluation, generation, merging, export."""

import contextlib
import ctypes
import os
import tempfile

from ._errors import UsageError
from ._library import Fields, library
from ._options import Options
from ._progress import open_progress
from ._records import are_records, write_records


class Evaluation:
    """Loss (mean over all target tokens, nats), perplexity and accuracy on data."""

    loss: float
    perplexity: float
    accuracy: float
    tokens: int
    learned_tokens: int

    def __init__(self, fields):
        self.__dict__.update(fields)

    def __repr__(self):
        return f'Evaluation(loss={self.loss:.4f}, perplexity={self.perplexity:.4g}, accuracy={self.accuracy:.3f}, tokens={self.tokens})'


def evaluate(progress=None, **arguments):
    with contextlib.ExitStack() as stack:
        if are_records('data', arguments.get('data')):
            path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), 'data.jsonl')
            write_records('data', arguments['data'], path)
            arguments['data'] = path
        options = stack.enter_context(Options('eval', arguments))
        shown, result = open_progress(progress), Fields('evaluation')
        options.show(shown)
        try:
            options.call('pt_evaluate', options.struct, result.buffer)
        finally:
            shown.close()
        return Evaluation(result.unpack())


class Generator:
    """A loaded model. Use it from one thread at a time; close() gives its memory back, as does `with`."""

    def __init__(self, arguments, progress):
        self.pointer = ctypes.c_void_p()
        self.options = Options('generate', arguments)
        self.shown = open_progress(progress)
        self.options.show(self.shown)
        try:
            self.options.call('pt_generator_open', self.options.struct, ctypes.byref(self.pointer))
        except BaseException:
            self.options.close()
            raise

    def _pieces(self, function, text, most):
        if not self.pointer:
            raise UsageError('the generator is closed')
        encoded = text.encode()
        self.options.call(function, self.pointer, encoded, ctypes.c_size_t(len(encoded)), ctypes.c_int64(most))
        self.shown.close()
        piece, n = ctypes.c_void_p(), ctypes.c_size_t()
        while self.options.call('pt_generator_next', self.pointer, ctypes.byref(piece), ctypes.byref(n))[0]:
            if n.value:
                yield ctypes.string_at(piece, n.value).decode(errors='replace')

    def stream(self, prompt, max_new_tokens=128):
        """The continuation of a text, piece by piece."""
        return self._pieces('pt_generator_prompt', prompt, max_new_tokens)

    def say(self, text, max_new_tokens=1024):
        """The reply to the next turn of a conversation, piece by piece."""
        return self._pieces('pt_generator_say', text, max_new_tokens)

    def forget(self):
        """The next turn begins another conversation."""
        library().pt_generator_forget(self.pointer)

    def __call__(self, prompt, max_new_tokens=128):
        return ''.join(self.stream(prompt, max_new_tokens))

    def logits(self, ids):
        """The logits after each token of a batch: a list of texts of the same length, each a list of ids. The result is a memoryview
        of floats (texts x length x vocabulary), which numpy.asarray takes."""
        if not self.pointer:
            raise UsageError('the generator is closed')
        rows = [list(map(int, row)) for row in ids]
        length = len(rows[0]) if rows else 0
        if not length or any(len(row) != length for row in rows):
            raise UsageError('ids: give texts of the same length, of at least one token')
        if any(not 0 <= i < 1 << 32 for row in rows for i in row):
            raise UsageError('ids: a token id is from 0 to the size of the vocabulary')
        vocabulary = library().pt_generator_vocabulary(self.pointer)
        flat = (ctypes.c_uint32 * (len(rows) * length))(*(i for row in rows for i in row))
        out = (ctypes.c_float * (len(rows) * length * vocabulary))()
        self.options.call('pt_generator_logits', self.pointer, flat, ctypes.c_int64(len(rows)), ctypes.c_int64(length), out)
        return memoryview(out).cast('B').cast('f', (len(rows), length, vocabulary))

    def close(self):
        if self.pointer:
            library().pt_generator_close(self.pointer)
            self.pointer = ctypes.c_void_p()
            self.options.close()
            self.shown.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def generator(progress=None, **arguments):
    return Generator(arguments, progress)


def generate(prompt='', max_new_tokens=None, chat=False, progress=None, **arguments):
    if not isinstance(prompt, str):
        raise TypeError(f'prompt is a {type(prompt).__name__}: give a text')
    with Generator(arguments, progress) as g:
        most = max_new_tokens if max_new_tokens is not None else 1024 if chat else 128
        return ''.join(g.say(prompt, most) if chat else g.stream(prompt, most))


def _write(command, function, progress, arguments):
    with Options(command, arguments) as options:
        shown = open_progress(progress)
        options.show(shown)
        try:
            options.call(function, options.struct)
        finally:
            shown.close()
        return options.get('out')


def merge(progress=None, **arguments):
    return _write('merge', 'pt_merge', progress, arguments)


def export(progress=None, **arguments):
    return _write('export', 'pt_export', progress, arguments)
