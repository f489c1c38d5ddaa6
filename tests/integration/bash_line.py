# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bash in a terminal makes of a line and the Tab key.

    bash_line.py COMPLETION_FILE < LINES

Each line is typed at the prompt of an interactive bash that has loaded COMPLETION_FILE, followed by
Tab, and by Ctrl-X Ctrl-B, which prints the line as it then is. Prints, for each line, the completed
one behind "line: ", or what was listed behind "list: " where there were several.
"""
import os
import pty
import re
import select
import sys
import time

DEADLINE = 60
RC = r'''
PS1='@@ '
unset PROMPT_COMMAND HISTFILE
bind 'set show-all-if-ambiguous on'
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
bind 'set completion-query-items 0'
bind 'set page-completions off'
bind 'set colored-stats off'
shows() { printf '\n<%s>\n' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }
bind -x '"\C-x\C-b": shows'
'''


def expect(fd, pattern):
    """Reads until @pattern; all that was read."""
    got, end = b'', time.monotonic() + DEADLINE
    while not re.search(pattern, got):
        if time.monotonic() > end:
            raise SystemExit('no %r in %r' % (pattern, got))
        if select.select([fd], [], [], 1)[0]:
            try:
                got += os.read(fd, 65536)
            except OSError:
                raise SystemExit('bash has gone: %r' % got) from None
    return got


def main():
    rc = os.path.join(os.environ['TMPDIR_LINE'], 'rc')
    with open(rc, 'w', encoding='ascii') as f:
        f.write(RC + '. %s\n' % os.path.abspath(sys.argv[1]))
    child, fd = pty.fork()
    if not child:
        os.environ.update(TERM='dumb', COLUMNS='4000', LINES='500', LC_ALL='C')
        os.execvp('bash', ['bash', '--noprofile', '--rcfile', rc, '-i'])
    import fcntl
    import struct
    import termios
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 500, 4000, 0, 0))
    expect(fd, rb'@@ ')
    for line in sys.stdin:
        line = line.rstrip('\n')
        os.write(fd, line.encode() + b'\t')
        os.write(fd, b'\x18\x02')
        got = expect(fd, rb'\n<[^\n]*>\r?\n').decode(errors='replace').replace('\r', '')
        text, completed = re.match(r'(.*)\n<([^\n]*)>\n', got, re.S).groups()
        listed = [t for part in text.split('\n')[1:] if not part.startswith('@@ ') for t in part.split()]
        if listed:
            print('list: ' + ' '.join(sorted(set(listed))))
        else:
            print('line: ' + completed)
        sys.stdout.flush()
    os.write(fd, b'exit\n')
    os.waitpid(child, 0)


main()
