"""Training data as Python objects: an iterable of dicts or texts becomes a .jsonl file."""

import json
import os
from collections.abc import Iterable, Mapping

from ._errors import Error, UsageError


def are_records(keyword, value):
    """Is it data themselves, and no paths?"""
    if value is None or isinstance(value, (str, os.PathLike)):
        return False
    if isinstance(value, Mapping):
        raise UsageError(f'{keyword} is a dict of {", ".join(map(str, value))}: give one of its values, or a list of records')
    if not isinstance(value, Iterable):
        raise TypeError(f'{keyword} is a {type(value).__name__}: give paths, or records as dicts')
    return not (isinstance(value, (list, tuple)) and all(isinstance(x, (str, os.PathLike)) for x in value))


def _plain(value):
    if hasattr(value, 'tolist'):  # numpy
        return value.tolist()
    raise TypeError(f'a {type(value).__name__} is no value of JSON')


def _line(keyword, number, record):
    if isinstance(record, str):
        record = {'text': record}
    if not isinstance(record, Mapping):
        raise TypeError(f'{keyword}: record {number} is a {type(record).__name__}: give dicts, or texts')
    try:
        return json.dumps(dict(record), ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as e:
        raise UsageError(f'{keyword}: record {number} cannot be written as JSON: {e}') from None


def write_records(keyword, records, path):
    """Returns how many."""
    number = 0
    with open(path, 'wb') as f:
        for number, record in enumerate(records, 1):
            f.write(_line(keyword, number, record) + b'\n')
    if not number:
        raise UsageError(f'{keyword}: there are no records')
    return number


def keep_records(keyword, records, folder, resumed):
    """Writes them into a run's folder. The data of a run that is resumed must be those that are there."""
    path = os.path.join(folder, keyword + '.jsonl')
    if not os.path.exists(path):
        try:
            write_records(keyword, records, path)
        except BaseException:
            os.unlink(path)
            raise
        return path
    if not resumed:
        raise UsageError(f'{path} exists already: give resume=True to go on with its run, or another out')
    new = path + '.new'
    try:
        write_records(keyword, records, new)
        with open(path, 'rb') as a, open(new, 'rb') as b:
            same = a.read() == b.read()
    finally:
        if os.path.exists(new):
            os.unlink(new)
    if not same:
        raise Error(f'{keyword} has other records than {path}, which the run began with: leave {keyword} out to go on with those')
    return path
