"""The shared library: loading it, calling it, and its errors as exceptions."""

import ctypes
import os
import re
import struct

from ._errors import DoesNotFit, Error, UsageError
from ._table import OPTIONS, STRUCTS, VERSION

NAME = 'libprotrain.so.0'
TEXTS = ('pt_version', 'pt_options_get')
POINTERS = ('pt_options_train', 'pt_options_evaluate', 'pt_options_generate', 'pt_options_merge', 'pt_options_export',
            'pt_plan_text', 'pt_plan_json', 'pt_ranks_launcher')
COUNTS = ('pt_generator_vocabulary', 'pt_generator_tokens')


class _Record(ctypes.Structure):
    _fields_ = [('code', ctypes.c_int), ('text', ctypes.c_char * 1016)]


_loaded = None


def _open():
    given = os.environ.get('PROTRAIN_LIBRARY')
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), NAME)
    path = given or (beside if os.path.exists(beside) else NAME)
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise Error(f'the library {path} cannot be loaded ({e}): install the package again, or set PROTRAIN_LIBRARY to its path') from None


def library():
    global _loaded
    if _loaded is None:
        lib = _open()
        for name in TEXTS:
            getattr(lib, name).restype = ctypes.c_char_p
        for name in POINTERS:
            getattr(lib, name).restype = ctypes.c_void_p
        for name in COUNTS:
            getattr(lib, name).restype = ctypes.c_int64
        has = lib.pt_version().decode()
        if has != VERSION:
            raise Error(f'the package protrain {VERSION} needs the library of the same version, but found {has}: install both again')
        _loaded = lib
    return _loaded


def by_keywords(text, command):
    """Fields in backquotes become keywords: `lora_rank` is lora."""
    names = {field: keyword for keyword, (_, field, _) in OPTIONS[command].items()}
    return re.sub('`([a-z0-9_]+)`', lambda m: '`' + names.get(m[1], m[1]) + '`', text)


def failure(code, text, command):
    kind = {-2: UsageError, -3: DoesNotFit}.get(code, Error)
    return kind(by_keywords(text, command))


def call(command, name, *arguments, may_fail=()):
    """Calls a function that leaves its error in its last argument. Returns its result, and the sentence of a code in may_fail."""
    record = _Record()
    code = getattr(library(), name)(*arguments, ctypes.byref(record))
    if code < 0 and code not in may_fail:
        raise failure(code, record.text.decode(errors='replace'), command)
    return code, by_keywords(record.text.decode(errors='replace'), command)


def taken_text(pointer):
    """The text of a pointer that the caller frees."""
    if not pointer:
        raise MemoryError
    text = ctypes.string_at(pointer).decode(errors='replace')
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    free(pointer)
    return text


class Fields:
    """A struct of the library, whose fields unpack() reads."""

    def __init__(self, name):
        size, self.fields = STRUCTS[name]
        self.buffer = ctypes.create_string_buffer(size)

    def unpack(self):
        return {name: struct.unpack_from('@' + letter, self.buffer, offset)[0] for name, (letter, offset) in self.fields.items()}
