class UpdateWeightFromTensor:
    def __init__(self, rank, buffer_size):
        self.rank = rank
        self.buffer_size = buffer_size

    def connect_rollout_engines(self):
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        info = IPCTrainerInitInfo(rank=self.rank, packed=True, packed_buffer_size_bytes=self.buffer_size)
        return WeightTransferTrainerFactory.create("ipc", info)

    def pack(self, tensors):
        from vllm.distributed.weight_transfer.packed_tensor import pack_tensors

        return pack_tensors(tensors, self.buffer_size)
