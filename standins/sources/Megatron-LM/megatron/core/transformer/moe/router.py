def compute_topk(scores, topk):
    """Indices of the `topk` largest scores, largest first."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return order[:topk]


class TopKRouter:
    def __init__(self, topk):
        self.topk = topk

    def routing(self, scores):
        return compute_topk(scores, self.topk)
