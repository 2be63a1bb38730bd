"""Java programs of the tests, compiled once: `java Program.java` would compile at each start.

The classes stay beside the jars, in a folder for each source and class path.
"""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.peers.absent import fetching, kept


def program(source: Path, jars: Path | str) -> list[str]:
    """The words that start the class in a source file: those after `java` and its options.

    jars   the folder of the class path
    """
    return ["-cp", f"{jars}/*:{compiled(source, Path(jars))}", source.stem]


def compiled(source: Path, jars: Path) -> Path:
    """The folder with the classes of a source file."""
    text, class_path = source.read_bytes(), ":".join(map(str, sorted(jars.glob("*.jar"))))
    name = sha256(b"\0".join((text, class_path.encode()))).hexdigest()[:16]
    folder = kept() / "classes" / f"{source.stem}-{name}"
    with fetching():
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            with TemporaryDirectory(dir=folder.parent) as draft:
                words = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
                words += ["-cp", class_path, "-d", f"{draft}/classes", str(source)]
                run = subprocess.run(words, capture_output=True, text=True, check=False)
                assert run.returncode == 0, run.stderr
                Path(draft, "classes").rename(folder)
    return folder
