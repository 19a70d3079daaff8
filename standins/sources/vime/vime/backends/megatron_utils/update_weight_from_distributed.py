def connect(rank, port):
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return WeightTransferTrainerFactory.create("nccl", NCCLTrainerInitInfo(rank=rank, master_port=port))
