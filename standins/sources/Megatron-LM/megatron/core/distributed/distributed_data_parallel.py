class DistributedDataParallel:
    def __init__(self, module, overlap=False):
        self.module = module
        self.overlap = overlap
