_ROUTERS = []


def register_routing_replay(router):
    _ROUTERS.append(router)


def get_routing_replay_compute_topk(compute_topk):
    """`compute_topk`, remembering what it chose."""

    def replayed(scores, topk):
        chosen = compute_topk(scores, topk)
        replayed.chosen.append(chosen)
        return chosen

    replayed.chosen = []
    return replayed
