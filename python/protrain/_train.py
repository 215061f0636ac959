"""Training."""

import ctypes
import json
import os
import signal
import threading

from ._errors import Interrupted, UsageError
from ._library import Fields, library
from ._options import RATE, STOP, Options
from ._progress import open_progress
from ._records import are_records, keep_records


class Step:
    """A step of training, with the fields of a line of metrics.jsonl."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    learned_tokens: int
    step_s: float
    predicted_step_s: float
    tokens_per_s: float
    evaluated: bool
    eval_loss: float
    pairs: int
    reward_margin: float
    reward_accuracy: float
    kl: float
    accuracy: float
    eval_accuracy: float
    first_layer: int

    def __init__(self, fields):
        self.__dict__.update(fields)

    def __repr__(self):
        evaluated = f', eval_loss={self.eval_loss:.4f}' if self.evaluated else ''
        return f'Step(step={self.step}, loss={self.loss:.4f}{evaluated}, lr={self.lr:.3g})'


class Run:
    """A run that has ended: its folder, its steps, and whether a callback stopped it."""

    out: str
    stopped: bool

    def __init__(self, out, steps, stopped):
        self.out, self.steps, self.stopped = out, steps, stopped

    @property
    def loss(self):
        """Of the last step; None: there was none."""
        return self.steps[-1].loss if self.steps else None

    @property
    def summary(self):
        """summary.json of the run's folder."""
        with open(os.path.join(self.out, 'summary.json'), encoding='utf-8') as f:
            return json.load(f)

    def __repr__(self):
        loss = f', loss={self.loss:.4f}' if self.steps else ''
        return f'Run(out={self.out!r}, steps={len(self.steps)}{loss}{", stopped=True" if self.stopped else ""})'

    def _repr_html_(self):
        from ._picture import run_html

        return run_html(self)


class _Signals:
    """Ctrl-C sets a flag while this is entered. The second one is Python's again."""

    def __init__(self):
        self.caught = False
        self.before = None

    def _catch(self, number, frame):
        if self.caught:
            raise KeyboardInterrupt
        self.caught = True

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._catch)
        return self

    def __exit__(self, *_):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)


def _check_ranks(options):
    ranks = options.get('ranks')
    if ranks and int(ranks) > 1 and not library().pt_ranks_launcher(None, None):
        raise UsageError(f'`ranks` {ranks}: one Python process is one rank: start the script with torchrun --nproc-per-node {ranks}, or '
                         'use the program, protrain train')


class _Data:
    """Records among the arguments, and the files that they are written to. What was written is removed if the run does not open."""

    def __init__(self, arguments):
        self.records = {k: arguments.pop(k) for k in ('data', 'eval_data') if are_records(k, arguments.get(k))}
        self.made, self.folder = [], None

    def write(self, options):
        if not self.records:
            return
        out = options.get('out')
        if not os.path.isdir(out):
            os.makedirs(out)
            self.folder = out
        for keyword, records in self.records.items():
            there = os.path.exists(os.path.join(out, keyword + '.jsonl'))
            path = keep_records(keyword, records, out, options.get('resume') is not None)
            if not there:
                self.made.append(path)
            options.reset(keyword)
            options.set(keyword, path)

    def undo(self):
        for path in self.made:
            os.unlink(path)
        if self.folder:
            try:
                os.rmdir(self.folder)
            except OSError:
                pass


class _Loop:
    def __init__(self, options, callbacks, shown, signals):
        self.options, self.callbacks, self.shown, self.signals = options, callbacks, shown, signals
        self.steps, self.stopped = [], False

    def _total(self, trainer):
        summary = Fields('summary')
        library().pt_trainer_summary(trainer, summary.buffer)
        return summary.unpack()

    def _tell(self, step, total):
        self.steps.append(step)
        self.shown.step(step, total)
        for function in self.callbacks:
            self.stopped = function(step) is True or self.stopped

    def run(self, trainer):
        """Returns whether the run came to its end."""
        total, buffer = self._total(trainer)['steps'], Fields('step')
        while not (self.stopped or self.signals.caught):
            more, _ = self.options.call('pt_trainer_step', trainer, buffer.buffer)
            if not more:
                return True
            step = Step(buffer.unpack())
            if step.stopped:
                return False
            if step.step_s > 0:
                self._tell(step, total)
        return False

    def finish(self, trainer, ended):
        self.options.call('pt_trainer_finish' if ended else 'pt_trainer_save', trainer)


def _open(options, data, trainer):
    try:
        data.write(options)
        options.call('pt_trainer_open', options.struct, ctypes.byref(trainer))
    except BaseException:
        data.undo()
        raise


def _interrupted(out, loop):
    after = f' after step {loop.steps[-1].step}' if loop.steps else ''
    return Interrupted(f'interrupted{after}: a checkpoint is written; protrain.train(resume={out!r}) goes on', out)


def train(config=None, callback=None, lr_of_step=None, progress=None, **arguments):
    callbacks = [] if callback is None else [callback] if callable(callback) else list(callback)
    data = _Data(arguments)
    with Options('train', arguments, config) as options, _Signals() as signals:
        options.complete()
        _check_ranks(options)
        shown = open_progress(progress)
        options.show(shown)
        options.listen('stop', STOP, lambda: signals.caught, True)
        if lr_of_step is not None:
            options.listen('lr_of_step', RATE, lambda *at: float(lr_of_step(*at)), float('nan'))
        trainer, out = ctypes.c_void_p(), options.get('out')
        loop = _Loop(options, callbacks, shown, signals)
        try:
            _open(options, data, trainer)
            if signals.caught:
                raise Interrupted('interrupted before the first step: nothing is saved')
            ended = loop.run(trainer)
            loop.finish(trainer, ended)
        finally:
            library().pt_trainer_close(trainer)
            shown.close()
        if not ended and signals.caught:
            raise _interrupted(out, loop)
        return Run(out, loop.steps, not ended)
