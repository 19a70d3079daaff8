from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="vime",
    version="0.1.0",
    packages=find_packages(include=["vime*", "vime_plugins*"]),
    python_requires=">=3.10",
    install_requires=Path(__file__).with_name("requirements.txt").read_text().split(),
)
