"""Programs in processes of their own that need not import anything: they are forked from one that has imported it all.

What a program says, and how it ends, does not depend on who read its modules from the disk, and to read them anew takes seconds
of each process. The one that forks has imported and done nothing else: no thread, no draw, no computation is in it. Tests of
imports start a Python of their own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import honestdp
from tests import leftover_processes

# A forked program runs as `python -c CODE` does: its exit code, its traceback, its handlers at exit and its last flush are
# Python's. Only the modules are not taken down one by one, which takes a second. Its parent has ended: it is a child of the
# tests, which adopt orphans.
_FORKING = """
import atexit, gc, json, os, signal, socket, sys, threading, warnings
with warnings.catch_warnings(action="ignore"):
    import numpy, torch, torch._dynamo, torch._inductor.config, sklearn.datasets, opendp.measurements
    import honestdp.cli.main, honestdp.search.tune, honestdp.training.train, honestdp.identity.values
    import honestdp.report.html, honestdp.report.costs, honestdp.data.named, honestdp.planner.comparison

gc.freeze()

def asked():
    door = socket.socket(fileno=int(sys.argv[1]))
    while True:
        said, handles, _, _ = socket.recv_fds(door, 1 << 20, 2)
        if not said:
            os._exit(0)
        inside, outside = os.pipe()
        between = os.fork()
        if between == 0:
            number = os.fork()
            if number:
                os.write(outside, str(number).encode())
                os._exit(0)
            for handle, place in zip(handles, (1, 2)):
                os.dup2(handle, place)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.closerange(3, 256)
            door.detach()
            return json.loads(said)
        os.waitpid(between, 0)
        number = os.read(inside, 64)
        for handle in (*handles, inside, outside):
            os.close(handle)
        door.send(number)

asked = asked()
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv[:], sys.path[:0] = ["-c", *asked["words"]], asked["paths"]
code = 0
try:
    exec(compile(asked["code"], "<string>", "exec"))
except SystemExit as left:
    code = left.code if isinstance(left.code, int) else int(left.code is not None)
    if code and not isinstance(left.code, int):
        print(left.code, file=sys.stderr)
except BaseException as error:
    sys.excepthook(type(error), error, error.__traceback__)
    code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
if code == -signal.SIGINT:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
os._exit(code)
"""
_forking: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


class Forked:
    """`python -c code *words` in this folder, as subprocess.Popen gives it."""

    returncode: int | None = None

    def __init__(
        self, folder: Path, code: str, *words: str, environment: dict[str, str] | None = None, path: str | Path = ""
    ) -> None:
        """path: where the program imports from, before all others."""
        self._said = os.memfd_create("out"), os.memfd_create("error")  # files in memory
        about = {"folder": str(folder), "code": code, "words": words, "paths": [str(path)] if path else []}
        about["environment"] = dict(os.environ) if environment is None else environment
        door = _door()
        socket.send_fds(door, [json.dumps(about).encode()], self._said)
        self.pid = int(door.recv(64))

    def poll(self) -> int | None:
        if self.returncode is None:
            number, status = os.waitpid(self.pid, os.WNOHANG)
            if number:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float = 300) -> int:
        if self.poll() is None:
            handle = os.pidfd_open(self.pid)
            ended, _, _ = select.select([handle], [], [], timeout)
            os.close(handle)
            if not ended:
                self.send_signal(signal.SIGKILL)
                raise subprocess.TimeoutExpired("a forked program", timeout)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        self.wait(timeout)
        out, error = (_whole(handle) for handle in self._said)
        return out, error


def _whole(handle: int) -> str:
    with open(handle, encoding="utf-8") as file:
        file.seek(0)
        return file.read()


def forked(
    folder: Path, code: str, *words: str, environment: dict[str, str] | None = None, path: str | Path = ""
) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a program that has ended."""
    process = Forked(folder, code, *words, environment=environment, path=path)
    out, error = process.communicate(timeout=300)
    assert process.returncode is not None
    return process.returncode, out, error


def _door() -> socket.socket:
    """To the process that forks, which is started for the first who asks and stays until the tests end."""
    if not _forking:
        leftover_processes.adopt_orphans()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(Path(honestdp.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _FORKING, str(there.fileno())]
        _forking.append((subprocess.Popen(command, env=os.environ | own, pass_fds=[there.fileno()]), here))
        there.close()
        leftover_processes.SHARED.add(_forking[0][0].pid)
    return _forking[0][1]


def end() -> None:
    """The process that forks ends with its door."""
    while _forking:
        process, door = _forking.pop()
        door.close()
        process.wait(timeout=60)
        leftover_processes.SHARED.discard(process.pid)
