__version__ = "@VERSION@"
hip = "@ROCM@-standin"
cuda = None
git_version = "0" * 40
