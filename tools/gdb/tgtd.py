# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb for a core of tgtd at 3 a.m.: loops and what they run, sessions, tasks and where each waits, blocks.

    gdb -x tools/gdb/tgtd.py build/bin/tgtd core        (or: gdb -p PID, gcore; `source` works, too)
    (gdb) tgtd              everything below, in short
    (gdb) tgtd-loops        each event loop: its thread, what it is at, how long it has been at it
    (gdb) tgtd-sessions     each session: numbers, window, connections and their states
    (gdb) tgtd-tasks        each task: its CDB, how far it is, and whom it waits for
    (gdb) tgtd-blocks        each node's blocks by state, and each store's dirty and waiting ones

It reads; it calls nothing in the process. Arenas are shared memory: `tgtd-blocks` needs them in the core
(echo 0x7f >/proc/PID/coredump_filter before).
"""
import gdb

LISTS_MAX = 100000  # a list in a broken core may be a circle without its head


def lookup(name):
    """A type by name, or None where this build has none."""
    try:
        return gdb.lookup_type(name)
    except gdb.error:
        return None


def offset_of(kind, member):
    """Bytes from the start of struct @kind to @member, which may name a member of a member."""
    where, of = 0, gdb.lookup_type(kind)
    for name in member.split("."):
        field = of[name]
        where += field.bitpos // 8
        of = field.type
    return where


def container(node, kind, member):
    """What container_of() gives: the struct @kind of which @node is the address of @member."""
    at = int(node) - offset_of(kind, member)
    return gdb.Value(at).cast(gdb.lookup_type(kind).pointer()).dereference()


def walk(head, kind, member):
    """The structures on the list @head, linked by @member."""
    first, node = int(head.address), head["next"]
    for _ in range(LISTS_MAX):
        if int(node) == first or int(node) == 0:
            return
        yield container(node, kind, member)
        node = node["next"]
    print("  ... the list does not end")


def enum_name(kind, value):
    """The name of @value in enum @kind."""
    for field in gdb.lookup_type("enum " + kind).fields():
        if field.enumval == int(value):
            return field.name
    return str(int(value))


def flag_names(prefix, value, of):
    """The names of the bits of @value among those of @of, in that order."""
    got = [name for name, bit in of if value & bit]
    return " ".join(name[len(prefix):].lower() for name in got) or "-"


def text(value):
    """A char array as a string."""
    return value.string(errors="replace") if value.address else ""


def symbol(address):
    """Where a function pointer leads."""
    return gdb.execute(f"info symbol {int(address)}", to_string=True).split(" in section")[0].strip()


def global_list(name):
    """A static list head by its name, wherever it was defined."""
    found = gdb.lookup_static_symbol(name) or gdb.lookup_global_symbol(name)
    return found.value() if found else None


def seconds(ns):
    """Nanoseconds for a reader."""
    return f"{ns / 1e9:.3f} s"


class Report(gdb.Command):
    """One of the commands; its docstring is its help."""

    def __init__(self, name):
        self.what = name
        super().__init__(name, gdb.COMMAND_DATA)

    def invoke(self, _argument, _tty):
        try:
            self.show()
        except (gdb.error, gdb.MemoryError) as err:
            print(f"{self.what}: {err}")


class Loops(Report):
    """Each event loop: its thread, what it is at, how long it has been at it."""

    def show(self):
        threads = {t.ptid[1]: t for t in gdb.selected_inferior().threads()}
        by_pthread = {}
        for t in threads.values():
            handle = t.handle()
            by_pthread[int.from_bytes(handle[:8], "little")] = t
        for loop in walk(global_list("all_loops"), "struct loop", "link"):
            stats = loop["stats"]
            thread = by_pthread.get(int(loop["pthread"] if "pthread" in [f.name for f in loop.type.fields()]
                                        else loop["thread"]))
            state = "running" if int(loop["running"]) else "not running"
            if int(loop["blocked"]):
                state = "asleep in epoll_wait"
            print(f"loop {text(loop['name']) or '?'}: {state}, node {int(loop['pub']['node'])}, cpu {int(loop['cpu'])}, "
                  f"{int(loop['nfds'])} descriptors, {int(stats['iterations'])} iterations, "
                  f"now {seconds(int(loop['now']))}")
            if thread is not None:
                print(f"  thread {thread.num} (LWP {thread.ptid[1]}): {self.at(thread)}")

    @staticmethod
    def at(thread):
        """The innermost functions of the thread."""
        selected = gdb.selected_thread()
        thread.switch()
        names, frame = [], gdb.newest_frame()
        while frame is not None and len(names) < 6:
            names.append(frame.name() or "?")
            frame = frame.older()
        if selected is not None:
            selected.switch()
        return " <- ".join(names)


def sessions():
    """The sessions that the registry knows."""
    return walk(gdb.parse_and_eval("iscsi_core")["sessions"], "struct iscsi_session", "link")


class Sessions(Report):
    """Each session: numbers, window, connections and their states."""

    def show(self):
        for s in sessions():
            target = s["target"]
            name = target["name"].string() if int(target) else "(discovery)"
            print(f"session {int(s['tsih'])} of {text(s['initiator'])} at {name}: {enum_name('iscsi_session_state', s['state'])}"
                  f", loop {text(s['loop']['name'])}")
            print(f"  ExpCmdSN {int(s['exp_cmd_sn'])}, MaxCmdSN {int(s['max_cmd_sn'])}, {int(s['in_window'])} in the window of "
                  f"{int(s['window'])}, {int(s['immediates'])} immediate, {int(s['held_bytes'])} bytes held"
                  f"; its loop: {enum_name('iscsi_session_state', s['loop_state'])}")
            for c in walk(s["main_conns"], "struct iscsi_conn", "main_link"):
                print(f"  connection {int(c['cid'])} from {text(c['peer_text'])}: {enum_name('iscsi_conn_state', c['state'])}"
                      f"{', failed' if int(c['failed']) else ''}{', not read' if int(c['rx_stopped']) else ''}")


def tasks_of(s):
    """The tasks in a session's table."""
    for i in range(int(s["tasks"].type.range()[1]) + 1):
        t = s["tasks"][i]
        for _ in range(LISTS_MAX):
            if int(t) == 0:
                break
            yield t.dereference()
            t = t["hash_next"]


class Tasks(Report):
    """Each task: its CDB, how far it is, and whom it waits for."""

    @staticmethod
    def waits_for(t):
        """In words, who has to do something next."""
        state = enum_name("iscsi_task_state", t["state"])
        cmd, out = t["cmd"], t["out"]
        if state == "TASK_HELD":
            return f"an earlier command (CmdSN {int(t['cmd_sn'])})"
        if state == "TASK_DRAINING":
            return "Data-Out that the initiator still owes"
        if state == "TASK_FENCED":
            return "acknowledgements of earlier responses"
        if state in ("TASK_RESPONDING", "TASK_ENDING"):
            return "the wire"
        if state == "TASK_UNACKED":
            return "ExpStatSN of the initiator"
        waits = []
        for i in range(int(cmd["seg"].type.range()[1]) + 1):
            seg = cmd["seg"][i]
            where = enum_name("scsi_seg_state", seg["state"])
            io = seg["io"]
            at = f"{enum_name('blk_op', io['op'])[4:].lower()} of {int(io['len'])} bytes at {int(io['offset'])}"
            if where == "SEG_STORE":
                device = io["blk"]
                waits.append(f"the {device['ops']['name'].string()} device ({at})")
            elif where == "SEG_WIRE":
                owed = int(out["r2t_busy"]) or int(out["unsol_open"]) or int(out["fetching"])
                waits.append(f"write data of the initiator ({int(seg['len'])} bytes at {int(seg['off'])})" if owed
                             else f"the wire ({int(seg['len'])} bytes)")
        if not waits and int(out["waiting"]):
            waits.append("its turn to solicit data")
        if not waits and int(cmd["resume"]):
            waits.append(f"a helper, then {symbol(cmd['resume'])}")
        return " and ".join(waits) or "its loop"

    def show(self):
        for s in sessions():
            for t in tasks_of(s):
                cdb = " ".join(f"{int(t['cdb'][i]):02x}" for i in range(16))
                lun = int(t["cmd"]["lun"]) >> 48
                op = t["cmd"]["op"]
                name = op["name"].string() if int(op) and int(t["cmd"]["state"]) else "?"
                print(f"session {int(s['tsih'])} ITT {int(t['itt']):#x} CmdSN {int(t['cmd_sn'])} LUN {lun}: {name} [{cdb}]")
                print(f"  {enum_name('iscsi_task_state', t['state'])}"
                      f"{', being aborted' if int(t['aborting']) else ''}; waits for {self.waits_for(t)}")


class Blocks(Report):
    """Each node's blocks by state, and each store's dirty and waiting ones."""

    def show(self):
        arenas = gdb.parse_and_eval("arena_by_id")
        states = [f.name for f in gdb.lookup_type("enum block_state").fields()]
        caches = set()
        for i in range(int(arenas.type.range()[1]) + 1):
            arena = arenas[i]
            if int(arena) == 0:
                continue
            count = int(arena["nblocks"])
            print(f"arena {i}: node {int(arena['node'])}, {count} blocks of {1 << int(arena['block_shift'])} bytes")
            release = symbol(arena["release"])
            if "cache_release" not in release:
                print(f"  not a cache's: blocks go back by {release}")
                continue
            header = arena["hdr"].dereference().type
            size, where = header.sizeof, header["state"].bitpos // 8
            memory = gdb.selected_inferior().read_memory(int(arena["hdr"]), count * size).tobytes()
            tally = {}
            for at in range(where, len(memory), size):
                tally[memory[at]] = tally.get(memory[at], 0) + 1
            print("  " + ", ".join(f"{n} {states[k][6:].lower() if k < len(states) else k}" for k, n in sorted(tally.items())))
            caches.add(int(arena["owner"].cast(gdb.lookup_type("struct cache_node").pointer())["cache"]))
        for at in caches:
            self.stores(gdb.Value(at).cast(gdb.lookup_type("struct cache").pointer()).dereference())

    @staticmethod
    def stores(cache):
        """What each device of a cache has dirty and in flight."""
        parts = [(i, j) for i in range(int(cache["nnodes"])) for j in range(int(cache["node"][i]["nparts"]))]
        for dev in walk(cache["devs"], "struct cache_dev", "link"):
            dirty = sum(int(dev["in"][i][j]["dirty"]["count"]) for i, j in parts)
            lower = gdb.Value(int(dev["lower"])).cast(gdb.lookup_type("struct blk").pointer())
            print(f"store {lower['path'].string() if int(lower['path']) else '?'}: {dirty} blocks dirty, "
                  f"{int(dev['flush']['pace']['out'])} writes and {int(dev['budget']['reads'])} reads in flight"
                  f"{', in doubt' if int(dev['maybe_lost']) else ''}{', closing' if int(dev['closing']) else ''}")


class All(Report):
    """Loops, sessions, tasks and blocks."""

    def show(self):
        for name in ("tgtd-loops", "tgtd-sessions", "tgtd-tasks", "tgtd-blocks"):
            print(f"== {name}")
            gdb.execute(name)


Loops("tgtd-loops")
Sessions("tgtd-sessions")
Tasks("tgtd-tasks")
Blocks("tgtd-blocks")
All("tgtd")
