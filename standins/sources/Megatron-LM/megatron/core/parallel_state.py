_SIZES = {"tensor": 1, "pipeline": 1, "expert": 1}


def initialize_model_parallel(tensor=1, pipeline=1, expert=1):
    _SIZES.update(tensor=tensor, pipeline=pipeline, expert=expert)


def get_tensor_model_parallel_world_size():
    return _SIZES["tensor"]


def get_pipeline_model_parallel_world_size():
    return _SIZES["pipeline"]


def get_expert_model_parallel_world_size():
    return _SIZES["expert"]
