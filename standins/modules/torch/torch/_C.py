def _cuda_getArchFlags():
    return "@TARGETS@"
