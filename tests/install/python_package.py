"""What the package does, beside the program: python_package.py PROTRAIN FOLDER, which has a model and stories.jsonl."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree

import protrain

program, root = sys.argv[1:]
model, stories = os.path.join(root, 'model'), os.path.join(root, 'stories.jsonl')
OPTIONS = dict(seq_len=32, batch_size=4, steps=6, lr=1e-3, device='cpu', threads=1, device_memory='64MiB', disk_memory=0, dtype='fp32')


def path(*names):
    return os.path.join(root, *names)


def raises(kind, words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as e:
        assert words in str(e), f'"{words}" is not in: {e}'
        return e
    raise AssertionError(f'{function.__name__} did not raise {kind.__name__}')


def by_program(out):
    flags = [x for k, v in OPTIONS.items() for x in ('--' + k.replace('_', '-'), str(v))]
    subprocess.run([program, 'train', '--model', model, '--data', stories, '--out', out, '--quiet', *flags], check=True, capture_output=True)


def weights(out):
    with open(os.path.join(out, 'model.safetensors'), 'rb') as f:
        return f.read()


def records():
    with open(stories, encoding='utf-8') as f:
        for line in f:
            yield json.loads(line)


def an_interrupted_run_ends_in_the_bits_of_the_program():
    by_program(path('program'))
    seen = []

    def interrupt(step):
        seen.append(step)
        if step.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    e = raises(protrain.Interrupted, 'interrupted after step 2', protrain.train, model=model, data=records(), out=path('python'),
               callback=interrupt, **OPTIONS)
    assert isinstance(e, KeyboardInterrupt) and e.out == path('python') and os.path.isdir(path('python', 'checkpoint-2'))
    assert signal.getsignal(signal.SIGINT) is before
    assert [s.step for s in seen] == [1, 2] and seen[0].loss > 0 and seen[0].lr == 1e-3
    run = protrain.train(resume=path('python'))
    assert [s.step for s in run.steps] == [3, 4, 5, 6] and not run.stopped and run.summary['steps'] == 6
    assert '<polyline' in run._repr_html_()
    assert weights(path('python')) == weights(path('program')), 'other bits than those of the program'
    raises(protrain.Error, 'has other records', protrain.train, resume=path('python'), data=['a', {'text': 'b'}])


def a_callback_ends_a_run_and_gives_its_rates():
    rates = []
    run = protrain.train(model=model, data=stories, out=path('rates'), lr_of_step=lambda step, steps, lr: lr / step,
                         callback=[lambda s: rates.append(s.lr), lambda s: s.step == 2], **dict(OPTIONS, lr_schedule='constant'))
    assert run.stopped and rates == [1e-3, 5e-4] and os.path.isdir(path('rates', 'checkpoint-2'))


def an_exception_passes_through():
    def fails(*_):
        raise ZeroDivisionError('mine')

    raises(ZeroDivisionError, 'mine', protrain.train, model=model, data=stories, out=path('failed'), lr_of_step=fails, **OPTIONS)
    raises(ZeroDivisionError, 'mine', protrain.train, model=model, data=stories, out=path('failed2'), callback=fails, **OPTIONS)
    raises(ZeroDivisionError, 'mine', protrain.train, model=model, data=(fails() for _ in 'ab'), out=path('new'), **OPTIONS)
    assert not os.path.exists(path('new'))


def errors_have_the_programs_sentence():
    raises(protrain.UsageError, '`lr` 0: it must be a number above 0', protrain.train, model=model, lr=0)
    raises(ValueError, '`lora` 100000: it must be at most', protrain.train, model=model, lora=100000)
    raises(TypeError, 'learning_rate', protrain.train, learning_rate=1)
    raises(protrain.Error, 'nowhere', protrain.train, model=path('nowhere'), data=stories, out=path('none'))
    raises(protrain.UsageError, 'record 2 cannot be written', protrain.train, model=model, data=[{'text': 'a'}, {'text': {1}}],
           out=path('none'))
    raises(TypeError, 'record 1 is a int', protrain.train, model=model, data=iter([1]), out=path('none'))
    raises(protrain.UsageError, 'a dict of train, test', protrain.train, model=model, data={'train': [], 'test': []})
    raises(protrain.UsageError, 'torchrun', protrain.train, model=model, data=stories, out=path('none'), ranks=2)
    assert not os.path.exists(path('none'))


def a_plan_is_a_picture():
    options = dict(OPTIONS, model=model, lora=None)
    p = protrain.plan(**options)
    assert p.fits and p.step_s > 0 and 'weights' in p.text and p.data['fits']
    picture = xml.etree.ElementTree.fromstring(p._repr_svg_())
    assert sum(x.tag.endswith('rect') for x in picture.iter()) >= 4
    assert '<pre>' in p._repr_html_()
    none = protrain.plan(**dict(options, device_memory='64KiB'))
    assert not none.fits and none.reason and none.step_s is None and xml.etree.ElementTree.fromstring(none._repr_svg_()) is not None


def what_is_trained_generates():
    options = dict(model=path('program'), device='cpu', threads=1, temperature=0, dtype='fp32')
    text = protrain.generate('Once upon', max_new_tokens=8, **options)
    by = subprocess.run([program, 'generate', '--model', path('program'), '--device', 'cpu', '--threads', '1', '--temperature', '0', '--dtype',
                         'fp32', '--prompt', 'Once upon', '--max-new-tokens', '8', '--quiet'], check=True, capture_output=True, text=True)
    assert text.strip() == by.stdout.strip() and text
    with protrain.generator(**options) as g:
        assert ''.join(g.stream('Once upon', 8)) == text
        logits = g.logits([[1, 2, 3], [4, 5, 6]])
        assert logits.shape == (2, 3, 300) and logits[0, 0, 0] != logits[1, 2, 299]
        raises(protrain.UsageError, 'same length', g.logits, [[1], [1, 2]])
    raises(protrain.UsageError, 'closed', g, 'a')
    one = protrain.evaluate(model=path('program'), data=stories, seq_len=32, device='cpu', dtype='fp32')
    same = protrain.evaluate(model=path('program'), data=records(), seq_len=32, device='cpu', dtype='fp32')
    assert one.loss == same.loss and one.tokens == same.tokens


for check in (an_interrupted_run_ends_in_the_bits_of_the_program, a_callback_ends_a_run_and_gives_its_rates, an_exception_passes_through,
              errors_have_the_programs_sentence, a_plan_is_a_picture, what_is_trained_generates):
    check()
    print(check.__name__.replace('_', ' '))
