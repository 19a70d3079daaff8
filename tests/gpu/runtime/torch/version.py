import simulated

hip = simulated.HOST.get("rocm", "7.14.0")
cuda = None if hip else "13.0"
__version__ = f"2.12.0+rocm{hip}" if hip else "2.12.0+cu130"
