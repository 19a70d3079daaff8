import os
import signal


def kill_process_tree(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
