from torch_memory_saver import torch_memory_saver


def offload():
    torch_memory_saver.pause()


def reload():
    torch_memory_saver.resume()
