"""Train language models on the hardware you have.

    import protrain

    protrain.plan(model='my-model', lora=16)
    run = protrain.train(model='my-model', data='chats.jsonl', lora=16)
    print(protrain.generate('Hello', model='my-model', adapter=run.out))

Keywords are the options of the program: --lr-schedule is lr_schedule.
"""

from ._api import evaluate, export, generate, generator, merge, plan, train
from ._errors import DoesNotFit, Error, Interrupted, UsageError
from ._table import VERSION as __version__

__all__ = ['train', 'plan', 'evaluate', 'generate', 'generator', 'merge', 'export',
           'Error', 'UsageError', 'DoesNotFit', 'Interrupted', '__version__']
