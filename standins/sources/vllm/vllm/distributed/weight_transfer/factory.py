class WeightTransferTrainerFactory:
    kinds = ("ipc", "nccl")

    @classmethod
    def create(cls, kind, info):
        if kind not in cls.kinds:
            raise ValueError(kind)
        return kind, info
