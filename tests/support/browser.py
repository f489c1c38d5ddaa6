# SPDX-License-Identifier: GPL-2.0-or-later
"""Headless Chromium, spoken to over its DevTools pipe: messages are JSON, each ends with a NUL."""
import base64, json, os, shutil, subprocess, threading, time


def find():
    return shutil.which('chromium') or shutil.which('chromium-browser')


class Browser:
    def __init__(self, folder, width=1300, height=1500):
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        # 3 and 4 are where it looks; moved out of each other's way first
        shell = 'exec 3<&%d 4>&%d; exec "$@"' % (theirs_in, theirs_out)
        self.p = subprocess.Popen(
            ['bash', '-c', shell, 'browser', find(), '--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
             '--disable-background-networking', '--no-first-run', '--user-data-dir=' + folder,
             '--window-size=%d,%d' % (width, height), 'about:blank'],
            pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.session, self.said, self.rest = 0, None, [], b''
        self.guard = threading.Timer(240, self.p.kill)  # it never hangs a test
        self.guard.start()

    def receive(self):
        while b'\0' not in self.rest:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise EOFError('the browser has ended')
            self.rest += more
        message, self.rest = self.rest.split(b'\0', 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = dict(id=self.number, method=method, params=params)
        if self.session:
            message['sessionId'] = self.session
        os.write(self.to, json.dumps(message).encode() + b'\0')
        while True:
            m = self.receive()
            if m.get('id') == self.number:
                assert 'error' not in m, m
                return m['result']
            if m.get('method') in ('Log.entryAdded', 'Runtime.exceptionThrown', 'Runtime.consoleAPICalled'):
                self.said.append(m['params'])

    def open(self, url):
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Log', 'Runtime', 'Page'):
            self.call(domain + '.enable')
        self.call('Page.navigate', url=url)

    def value(self, expression):
        r = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
        assert 'exceptionDetails' not in r, r
        return r['result'].get('value')

    def wait(self, expression, seconds=60):
        """Until it is true; False: it is not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.value(expression):
                    return True
            except AssertionError:
                pass  # there is no page yet
            time.sleep(0.2)
        return False

    def picture(self, path):
        data = base64.b64decode(self.call('Page.captureScreenshot', format='png')['data'])
        with open(path, 'wb') as f:
            f.write(data)
        return len(data)

    def end(self):
        self.guard.cancel()
        self.p.kill()
        self.p.wait()
        os.close(self.to)
        os.close(self.back)
