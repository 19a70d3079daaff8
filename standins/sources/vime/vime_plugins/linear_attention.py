from fla.layers import GatedDeltaNet


def attention(size):
    return GatedDeltaNet(size)
