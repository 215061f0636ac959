"""The program, with its arguments: python3 -m protrain train ..."""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'protrain')
    if not os.path.exists(program):
        sys.exit(f'the program is not in {os.path.dirname(program)}: install the package again')
    os.execv(program, ['protrain'] + sys.argv[1:])


if __name__ == '__main__':
    main()
