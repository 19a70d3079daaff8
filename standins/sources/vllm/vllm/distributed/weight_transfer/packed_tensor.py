def pack_tensors(tensors, limit):
    """Lists of neighbours whose sizes sum to at most `limit`."""
    packs, size = [[]], 0
    for tensor in tensors:
        if packs[-1] and size + len(tensor) > limit:
            packs.append([])
            size = 0
        packs[-1].append(tensor)
        size += len(tensor)
    return packs
