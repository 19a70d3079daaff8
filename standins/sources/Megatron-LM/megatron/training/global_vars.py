_ARGS = {}


def get_args():
    return _ARGS["args"]


def set_args(args):
    _ARGS["args"] = args
