"""Processes that are started here, and end before this one does, whatever happens."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

SELF = pathlib.Path(__file__).resolve().parent.parent / "gpu"
BIN = pathlib.Path(os.environ.get("PLIMSOLL_BIN", "target/release/plimsoll")).resolve()
STARTED = []


class TooLong(BaseException):
    """The time for all of it is over. No handler of ordinary errors may keep it."""


def limit(seconds):
    """Ends all of it after so long: first with an error, and where that hangs too, at once."""

    def over(*_):
        # Whoever waits for one of them, waits no longer.
        kill_all()
        raise TooLong(f"not done within {seconds:.0f} s")

    def at_once():
        kill_all()
        print(f"WRONG: hung for more than {seconds:.0f} s", file=sys.stderr, flush=True)
        os._exit(1)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last = threading.Timer(seconds + 8, at_once)
    last.daemon = True
    last.start()


def no_limit():
    signal.setitimer(signal.ITIMER_REAL, 0)


def kill_all():
    for process in STARTED:
        if process.poll() is None:
            process.kill()


def popen(command, **more):
    process = subprocess.Popen([str(part) for part in command], **more)
    STARTED.append(process)
    return process


def run(command, seconds, **more):
    """Runs a command to its end, which must be good; returns it with what it printed."""
    done = run_any(command, seconds, **more)
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command)
        raise RuntimeError(f"exit code {done.returncode} of {shown}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done


def run_any(command, seconds, **more):
    """As `run`, whatever the exit code is."""
    process = popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"not within {seconds} s: {' '.join(map(str, command))}") from None
    except BaseException:
        process.kill()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def environment(extra=None):
    """Ours without variables of Plimsoll's but for which GPU and which kernels; the folder of these by its whole path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_")}
    if kernels := os.environ.get("PLIMSOLL_DEVICE__KERNELS"):
        kept["PLIMSOLL_DEVICE__KERNELS"] = str(pathlib.Path(kernels).resolve())
    if index := os.environ.get("PLIMSOLL_DEVICE__INDEX"):
        kept["PLIMSOLL_DEVICE__INDEX"] = index
    return kept | (extra or {})
