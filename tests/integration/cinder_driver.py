# SPDX-License-Identifier: GPL-2.0-or-later
"""OpenStack Cinder's tgt driver, as it lies in a checkout, against the tools in PATH.

    cinder_driver.py CHECKOUT VOLUMES_DIR STORE

Its targets/tgt.py, iscsi.py, driver.py and privsep/targets/tgt.py run unchanged; what they import of the rest of
Cinder and of oslo is replaced here, down to execute(), which runs the programs. Ends with 0 when a volume was created
with CHAP, exported anew, extended and removed, and each left behind what it should.
"""
import importlib
import logging
import os
import subprocess
import sys
import types

checkout, volumes_dir, store = sys.argv[1:]


def module(name, **members):
    m = types.ModuleType(name)
    m.__path__ = []
    m.__dict__.update(members)
    sys.modules[name] = m
    parent, _, leaf = name.rpartition('.')
    if parent:
        setattr(sys.modules[parent], leaf, m)
    return m


class ProcessExecutionError(Exception):
    def __init__(self, stdout, stderr, exit_code, cmd):
        super().__init__(f'{cmd} ends with {exit_code}: {stdout}{stderr}')
        self.stdout, self.stderr = stdout, stderr


def execute(*cmd, **_):
    done = subprocess.run(cmd, capture_output=True, text=True, check=False)
    print('#', *cmd, '->', done.returncode, done.stderr.strip())
    if done.returncode:
        raise ProcessExecutionError(done.stdout, done.stderr, done.returncode, cmd)
    return done.stdout, done.stderr


def robust_file_write(directory, name, data):
    with open(os.path.join(directory, name), 'w', encoding='utf-8') as f:
        f.write(data)


def once(_error, **_):
    return lambda function: function


class CinderException(Exception):
    def __init__(self, message=None, **args):
        super().__init__(message or str(args))


class Context:
    @staticmethod
    def entrypoint(function):
        return function


class Known(dict):
    """A dictionary that is an object, too."""
    __getattr__ = dict.__getitem__
    safe_get = dict.get


module('oslo_concurrency')
module('oslo_concurrency.processutils', ProcessExecutionError=ProcessExecutionError, execute=execute)
module('oslo_log')
module('oslo_log.log', getLogger=logging.getLogger)
module('oslo_utils')
module('oslo_utils.fileutils', ensure_tree=lambda p: os.makedirs(p, exist_ok=True),
       delete_if_exists=lambda p: os.path.exists(p) and os.unlink(p))
module('oslo_config')
module('oslo_config.cfg', CONF=Known(rootwrap_config=''))
module('cinder')
module('cinder.exception', **{n: type(n, (CinderException,), {}) for n in (
    'NotFound', 'ISCSITargetCreateFailed', 'ISCSITargetRemoveFailed', 'InvalidVolume', 'InvalidConnectorException',
    'InvalidParameterValue')})
module('cinder.i18n', _=str)
module('cinder.utils', retry=once, robust_file_write=robust_file_write)
module('cinder.common')
module('cinder.common.constants', ISCSI='iSCSI')
volume = Known(id='01234567-89ab-cdef-0123-456789abcdef', name='volume-01234567-89ab-cdef-0123-456789abcdef',
               provider_location=None, provider_auth=None, volume_attachment=['one'])
module('cinder.db')
module('cinder.db.api', volume_get=lambda context, number: volume)
module('cinder.privsep', sys_admin_pctxt=Context).__path__ = [os.path.join(checkout, 'cinder/privsep')]
module('cinder.privsep.targets').__path__ = [os.path.join(checkout, 'cinder/privsep/targets')]
module('cinder.volume')
module('cinder.volume.volume_utils', generate_username=lambda: 'chapuser', sanitize_host=lambda host: host,
       generate_password=lambda: 'chapsecret123')
module('cinder.volume.targets').__path__ = [os.path.join(checkout, 'cinder/volume/targets')]

driver = importlib.import_module('cinder.volume.targets.tgt').TgtAdm(configuration=Known(
    target_prefix='iqn.2010-10.org.openstack:', target_protocol='iscsi', volumes_dir=volumes_dir,
    target_ip_address='127.0.0.1', target_secondary_ip_addresses=[], target_port=3260))


def show():
    return execute('tgt-admin', '--show')[0]


data = driver.create_export(None, volume, store)
volume['provider_location'], volume['provider_auth'] = data['location'], data['auth']
assert data['auth'] == 'CHAP chapuser chapsecret123', data
assert data['location'].endswith(f" iqn.2010-10.org.openstack:{volume['name']} 1"), data
assert driver.initialize_connection(volume, {})['data']['target_lun'] == 1
before = show()
driver.ensure_export(None, volume, store)
assert show() == before, 'a second export changed something'
os.truncate(store, os.path.getsize(store) + (1 << 30))
driver.extend_target(volume)
assert show() != before, 'the extended volume has its old size'
driver.remove_export(None, volume)
assert volume['name'] not in show(), 'the target is still there'
assert not os.listdir(volumes_dir), 'the file of the volume is still there'
