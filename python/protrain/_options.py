"""Keywords to the library's options."""

import ctypes
import os
from collections.abc import Iterable

from ._errors import UsageError
from ._library import call, library
from ._table import OPTIONS, STRUCTS

STRUCT_OF = {'train': 'train', 'plan': 'train', 'eval': 'evaluate', 'generate': 'generate', 'merge': 'merge', 'export': 'export'}

NOTICE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
PROGRESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
STOP = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
RATE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double)


def text_of(keyword, value):
    if isinstance(value, bool):
        return b'true' if value else b'false'
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        encoded = text if isinstance(text, bytes) else os.fsencode(text)
        if b'\0' in encoded:
            raise UsageError(f'{keyword}: {value!r} has a NUL character')
        return encoded
    if isinstance(value, float):
        return repr(value).encode()
    try:
        return str(value.__index__()).encode()
    except AttributeError:
        pass
    if hasattr(value, '__float__'):
        return repr(float(value)).encode()
    raise TypeError(f'{keyword} is a {type(value).__name__}: give a text or a number')


class Options:
    """The options of a command, with what was given. A context manager."""

    def __init__(self, command, given, config=None):
        self.command = command
        self.pointer = ctypes.c_void_p()
        self._callbacks = []  # which must live as long
        self.failure = None   # the exception of a callback
        call(command, 'pt_options_open', command.encode(), ctypes.byref(self.pointer))
        try:
            for keyword, value in given.items():
                if value is not None:
                    self.set(keyword, value)
            if config is not None:
                call(command, 'pt_options_read', self.pointer, os.fsencode(config))
        except BaseException:
            self.close()
            raise

    def set(self, keyword, value):
        name, _, several = OPTIONS[self.command][keyword]
        if keyword == 'resume' and isinstance(value, bool):
            if not value:
                return
            value = ''
        single = not several or isinstance(value, (str, os.PathLike)) or not isinstance(value, Iterable)
        for one in [value] if single else value:
            call(self.command, 'pt_options_set', self.pointer, name.encode(), text_of(keyword, one))

    def reset(self, keyword):
        call(self.command, 'pt_options_set', self.pointer, OPTIONS[self.command][keyword][0].encode(), None)

    def get(self, keyword):
        text = library().pt_options_get(self.pointer, OPTIONS[self.command][keyword][0].encode(), 0)
        return None if text is None else os.fsdecode(text)

    def complete(self):
        call(self.command, 'pt_options_complete', self.pointer)

    @property
    def struct(self):
        return ctypes.c_void_p(getattr(library(), 'pt_options_' + STRUCT_OF[self.command])(self.pointer))

    def _guard(self, function, otherwise):
        """An exception cannot pass through the library: it is kept for raise_failure()."""
        def guarded(_, *arguments):
            try:
                return function(*arguments)
            except BaseException as e:
                self.failure = self.failure or e
                return otherwise
        return guarded

    def listen(self, field, kind, function, otherwise=None):
        callback = kind(self._guard(function, otherwise))
        self._callbacks.append(callback)
        offset = STRUCTS['train' if self.command == 'plan' else self.command][1][field][1]
        ctypes.c_void_p.from_address(self.struct.value + offset).value = ctypes.cast(callback, ctypes.c_void_p).value

    def show(self, shown):
        self.listen('notice', NOTICE, lambda sentence: shown.notice(sentence.decode(errors='replace'), self.command))
        self.listen('progress', PROGRESS, lambda stage, done, total: shown.stage(stage.decode(errors='replace'), done, total))

    def raise_failure(self):
        if self.failure is not None:
            raised, self.failure = self.failure, None
            raise raised

    def call(self, name, *arguments, may_fail=()):
        """The exception of a callback goes before the error that it led to."""
        try:
            result = call(self.command, name, *arguments, may_fail=may_fail)
        except Exception:
            self.raise_failure()
            raise
        self.raise_failure()
        return result

    def close(self):
        library().pt_options_close(self.pointer)
        self.pointer = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
