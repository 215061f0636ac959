"""How far it is: a line in a terminal, a bar in a notebook, nothing elsewhere."""

import html
import sys
import time

from ._library import by_keywords

EVERY_S = 0.2


class Silent:
    def notice(self, sentence, command):
        print('note: ' + by_keywords(sentence, command), file=sys.stderr, flush=True)

    def stage(self, stage, done, total):
        pass

    def step(self, step, total):
        pass

    def close(self):
        pass


class Terminal(Silent):
    def __init__(self):
        self.last = 0.0
        self.width = 0

    def _clear(self):
        if self.width:
            print('\r' + ' ' * self.width + '\r', end='', file=sys.stderr, flush=True)
            self.width = 0

    def _draw(self, text, now=False):
        if not now and time.monotonic() - self.last < EVERY_S:
            return
        self.last = time.monotonic()
        text = text[:100]
        print('\r' + text.ljust(self.width), end='', file=sys.stderr, flush=True)
        self.width = len(text)

    def notice(self, sentence, command):
        self._clear()
        super().notice(sentence, command)

    def stage(self, stage, done, total):
        self._draw(f'{stage} {100 * done // total}%' if total else stage)

    def step(self, step, total):
        self._draw(step_text(step, total), step.step == total)
        if step.evaluated:
            self._clear()
            print(f'step {step.step}: evaluation loss {step.eval_loss:.4f}', file=sys.stderr, flush=True)

    def close(self):
        self._clear()


class Notebook(Silent):
    """One output that is replaced: a bar, the evaluations, the notes."""

    def __init__(self):
        self.last = 0.0
        self.notes, self.evaluations = [], []
        self.bar = ('', 0.0)
        self.handle = None

    def _html(self):
        text, share = self.bar
        bar = f'<progress max="1" value="{share:.4f}" style="width:20em"></progress> <code>{html.escape(text)}</code>'
        rows = ''.join(f'<tr><td>{n}</td><td>{loss:.4f}</td></tr>' for n, loss in self.evaluations)
        table = f'<table><tr><th>step</th><th>evaluation loss</th></tr>{rows}</table>' if rows else ''
        notes = ''.join(f'<div><small>note: {html.escape(note)}</small></div>' for note in self.notes)
        return f'<div>{bar if text else ""}{table}{notes}</div>'

    def _draw(self, now=False):
        if not now and time.monotonic() - self.last < EVERY_S:
            return
        from IPython.display import HTML, display

        self.last = time.monotonic()
        if self.handle is None:
            self.handle = display(HTML(self._html()), display_id=True)
        else:
            self.handle.update(HTML(self._html()))

    def notice(self, sentence, command):
        self.notes.append(by_keywords(sentence, command))
        self._draw(True)

    def stage(self, stage, done, total):
        self.bar = (stage, done / total if total else 0.0)
        self._draw()

    def step(self, step, total):
        self.bar = (step_text(step, total), step.step / total)
        if step.evaluated:
            self.evaluations.append((step.step, step.eval_loss))
        self._draw(step.evaluated or step.step == total)

    def close(self):
        if self.handle is not None:
            self._draw(True)


def step_text(step, total):
    rewards = f'  margin {step.reward_margin:.3f}' if step.pairs else ''
    return f'step {step.step}/{total}  loss {step.loss:.4f}{rewards}  {step.tokens_per_s:.0f} tok/s'


def in_notebook():
    """Does a kernel run this, which shows HTML?"""
    ipython = sys.modules.get('IPython')
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, 'kernel')


def open_progress(wanted):
    if wanted is False:
        return Silent()
    if in_notebook():
        return Notebook()
    return Terminal() if wanted or sys.stderr.isatty() else Silent()
