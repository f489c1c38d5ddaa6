#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Do a program's parser, its --help and its manual page speak of the same options?

    options.py PROGRAM SOURCE[,SOURCE...] MANUAL|-      prints what is missing where; nothing when they agree

The parser is read in its source: tables of struct option with the short options of getopt_long(), getopts of a shell,
add_argument() of Python. In the manual what counts as promised are the tags of its lists; further sources are of programs that share it. A letter
that --help keeps to itself, for it shows no letters, may be kept by the manual, too.
"""
import re, subprocess, sys

program, source, manual = sys.argv[1:]


def parsed(source):
    text = open(source).read()
    long, short = set(), set()
    if source.endswith('.py'):
        long |= set(re.findall(r"add_argument\('--([a-z][\w-]*)'", text))
    elif source.endswith('.sh'):
        for letters in re.findall(r'getopts (\S+)', text):
            short |= set(letters.replace(':', ''))
    else:
        long |= set(re.findall(r'\{\s*"([a-zA-Z][\w-]*)",\s*(?:no|required|optional)_argument', text))
        for letters in re.findall(r'getopt(?:_long)?\([^;"]*"([^"]*)"', text) + re.findall(r'short_options\[\] = "([^"]*)"', text):
            short |= set(re.sub(r'[:+]', '', letters))
    return long, short


source, *others = source.split(',')
long, short = parsed(source)
also = set().union(*(parsed(o)[0] for o in others))
assert long or short, 'no options found in ' + source
run = subprocess.run([program, '-h' if not long else '--help'], capture_output=True, text=True, timeout=60)
shown = run.stdout + run.stderr
bad = []


def options(said, pattern):
    return set(re.findall(r'(?<![\w-])' + pattern, said))


LONG, SHORT = r'--([a-z][\w-]*)', r'-([A-Za-z0-9])(?![\w-])'
asked = {'help', 'h'}  # whoever reads it knows

for o in sorted(long - options(shown, LONG) - asked):
    bad.append('--help does not have --' + o)
for o in sorted(options(shown, LONG) - long - also - asked if long else ()):
    bad.append('--help has --%s, which is not parsed' % o)
if options(shown, SHORT):
    for o in sorted(options(shown, SHORT) - short - asked):
        bad.append('--help has -%s, which is not parsed' % o)
    for o in sorted(short - options(shown, SHORT) - asked):
        bad.append('--help does not have -' + o)
if manual != '-':
    raw = open(manual).read()

    def plain(s):
        return re.sub(r'["]', '', re.sub(r'\\f(\(..|\[\w*\]|.)', '', s).replace('\\-', '-').replace('\\\n', ' '))

    page = plain(raw)
    tags = '\n'.join(re.findall(r'^\.T[PQ]\n(.*)$', page, re.M))
    for o in sorted(long - options(page, LONG) - asked):
        bad.append('the manual does not have --' + o)
    for o in sorted(short - options(page, SHORT) - asked) if options(shown, SHORT) else ():
        bad.append('the manual does not have -' + o)
    for o in sorted(options(tags, LONG) - long - also):
        bad.append('the manual has --%s, which is not parsed' % o)
    for o in sorted(options(tags, SHORT) - short):
        bad.append('the manual has -%s, which is not parsed' % o)
print('\n'.join(bad))
