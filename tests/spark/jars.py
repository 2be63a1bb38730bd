"""The official Kafka connector's jars, from Maven, kept outside the repository.

`KRUST_SPARK_JARS` names the folder they are in, or are put in (~/.cache/krust/spark). Connector and
token provider are pinned one by one: Maven has not every pair (see `PINS`), and a connector runs on
a Spark that is somewhat newer than itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CONNECTOR = "4.2.0"
PINS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def official() -> tuple[list[str], str]:
    """The jars, or none and why there are none."""
    folder = Path(os.environ.get("KRUST_SPARK_JARS") or Path.home() / ".cache/krust/spark")
    folder /= CONNECTOR
    wanted = [folder / f"{artifact}-{version}.jar" for _, artifact, version in PINS]
    if not all(jar.exists() for jar in wanted):
        problem = _fetch(folder)
        if problem:
            return [], problem
    return [str(jar) for jar in wanted], ""


def _fetch(folder: Path) -> str:
    if shutil.which("mvn") is None:
        return "no official connector: no mvn here"
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{_ALONE}</dependency>"
        for group, artifact, version in PINS
    )
    pom = folder / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>krust</groupId><artifactId>spark</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    run = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            pom,
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if run.returncode:
        return f"no official connector: Maven says {(run.stderr or run.stdout)[-200:]!r}"
    return ""
