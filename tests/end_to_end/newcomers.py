"""Plays seven newcomers, each in a fresh folder with the documentation alone, and prints what they see.

    python -m tests.end_to_end.newcomers [NAME...]

Each has files of their own and at most three commands, which stand in the guide as they are, but for ports.
The exit code is 1 where a newcomer fails or needs more than five minutes.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.command_line import ROOT
from tests.support.openai_server import OpenAIServer, in_thread
from tests.support.pages import PAGES, Session, blocks

COMMANDS, SECONDS = 3, 300
TEXTS = """id,task,model,text
refund,Can I have my money back?,bot,"Yes, within 30 days. We refund you tomorrow."
lost,My parcel is lost.,bot,I am sorry. We send another one today.
price,Why did the price rise?,bot,Prices change.
"""
BETTER = TEXTS.replace("Prices change.", "Our supplier charges more since Monday. Thank you for asking.")
RULES = "[[criteria]]\nid = 'says_when'\nrule = { matches = '(?i)today|tomorrow|monday' }\n"
POLITE = "[[criteria]]\nid = 'polite'\npasses = 'The text thanks, asks or apologizes.'\n"


class Newcomer:
    """Somebody who has read the guide, and sits before a shell.

    Args:
        folder: A fresh folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = 0
        self._code = [block for page in PAGES for block in blocks(page) if block.language == "bash"]
        self._session = Session(folder, (sys.executable, "-m", "dramaturg"))

    def writes(self, files: Mapping[str, str]) -> None:
        """Writes files of their own."""
        for name, text in files.items():
            print(f"# writes {name}")
            (self.folder / name).write_text(text, encoding="utf-8")

    def copies(self, page: str, name: str) -> None:
        """Copies a file from a page of the guide."""
        print(f"# copies {name} from guide/{page}.md")
        (block,) = [one for one in blocks(ROOT / "docs" / "guide" / f"{page}.md") if one.title == name]
        self._session.run(block)

    def runs(self, command: str) -> str:
        """Runs a command of the guide and returns its output."""
        self._counts(command)
        output = self._session.call("bash", self._own(command))
        print("\n".join(output.splitlines()[-12:]))
        return output

    def starts(self, command: str, port: str) -> None:
        """Starts a server in another terminal."""
        self._counts(command)
        self._session.start(self._own(command), self._session.moved(port))

    def kills(self, command: str, sign: str) -> None:
        """Runs a command and kills it with SIGKILL once its output has a sign."""
        self._counts(command)
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._own(command)}"],
            cwd=self.folder,
            env={**self._session.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="")
            if re.search(sign, line):
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        print(f"# kill -9: exit code {process.returncode}")
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"

    def sets(self, **variables: str) -> None:
        """Sets variables, as the first part of a documented command."""
        self._session.environment.update(variables)
        print("$ export " + " ".join(f"{name}={value}" for name, value in variables.items()))

    def address(self, port: str) -> str:
        """The address of a port of the guide."""
        return f"127.0.0.1:{self._session.moved(port)}"

    def leaves(self) -> None:
        """Ends all servers."""
        self._session.close()

    def _counts(self, command: str) -> None:
        self.commands += 1
        assert self.commands <= COMMANDS, f"more than {COMMANDS} commands"
        assert any(command in block.code for block in self._code), f"no page has: {command}"
        print(f"$ {command}")

    def _own(self, command: str) -> str:
        return re.sub(r"\b50\d\d\d\b", lambda port: self._session.moved(port[0]), command)


def own_table(newcomer: Newcomer) -> None:
    """Has a table and a rubric."""
    newcomer.writes({"answers.csv": TEXTS, "rubric.toml": RULES})
    newcomer.runs("dramaturg eval answers.csv --criteria rubric.toml --out out/v1")
    newcomer.runs("dramaturg report out/v1 --out report.html")
    assert "says_when" in (newcomer.folder / "report.html").read_text(encoding="utf-8")


def own_model(newcomer: Newcomer) -> None:
    """Has the address of a model, here of an imitation."""

    verdict = {"reason": "It says what happens.", "verdict": "pass"}
    answer = json.dumps({"answers_the_question": verdict})
    newcomer.writes({"answers.csv": TEXTS})
    newcomer.copies("tutorial", "meaning.toml")
    with in_thread(OpenAIServer(lambda _: answer)) as server:
        newcomer.sets(OPENAI_BASE_URL=server.base_url, MODEL="my-model")
        output = newcomer.runs("dramaturg eval answers.csv --criteria meaning.toml --out out/meaning")
    assert "answers_the_question" in output


def python_judge(newcomer: Newcomer) -> None:
    """Writes a judge in Python."""
    newcomer.writes({"answers.csv": TEXTS, "rubric.toml": POLITE})
    newcomer.copies("write-a-judge", "polite.py")
    newcomer.copies("write-a-judge", "dramaturg.toml")
    newcomer.runs("dramaturg judges check rubric-judge --criterion polite -- python polite.py --port {port}")
    newcomer.starts("python polite.py --port 50099", "50099")
    newcomer.sets(DRAMATURG_CONFIG="dramaturg.toml")
    output = newcomer.runs(
        "dramaturg eval answers.csv --criteria rubric.toml --judge rubric-judge=polite --out out/polite"
    )
    assert re.search(r"polite\s+1\s+2\s+0", output)


def typescript_judge(newcomer: Newcomer) -> None:
    """Builds and checks a judge in TypeScript, in a clone."""
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", "clone"], cwd=newcomer.folder, check=True
    )
    for part in ("sdk", "protos"):
        shutil.move(newcomer.folder / "clone" / part, newcomer.folder / part)
    newcomer.runs("(cd sdk/typescript && npm install && npm run build)")
    newcomer.runs("dramaturg judges check critic -- node sdk/typescript/dist/examples/terse_critic.js")


def killed_run(newcomer: Newcomer) -> None:
    """Has a long run killed, and goes on with it."""
    rows = "".join(f'row{number},Question {number},bot,"Answer {number}, today."\n' for number in range(2000))
    newcomer.writes({"answers.csv": "id,task,model,text\n" + rows, "rubric.toml": RULES})
    command = "dramaturg eval answers.csv --criteria rubric.toml --out out/v1"
    newcomer.kills(command, r"^[1-9][\d,]* of 2,000")
    output = newcomer.runs(command)
    assert "2,000 of 2,000 samples" in output
    newcomer.runs("dramaturg report out/v1 --out report.html")


def two_versions(newcomer: Newcomer) -> None:
    """Compares two versions of a model."""
    newcomer.writes({"answers.csv": TEXTS, "next.csv": BETTER, "rubric.toml": RULES})
    newcomer.runs("dramaturg eval answers.csv --criteria rubric.toml --out out/v1")
    newcomer.runs("dramaturg eval next.csv --criteria rubric.toml --out out/v2")
    output = newcomer.runs('dramaturg compare out/v1 out/v2 --margin 0.05 || echo "exit code $?"')
    assert "INCONCLUSIVE" in output


def labels(newcomer: Newcomer) -> None:
    """Has people label a sample of a run."""
    newcomer.writes({"answers.csv": TEXTS, "rubric.toml": RULES})
    newcomer.starts("dramaturg up", "50051")
    newcomer.runs("dramaturg eval answers.csv --criteria rubric.toml --target localhost:50051 --detach > run")
    output = newcomer.runs('dramaturg labels create "$(cat run)" --size 2 --target localhost:50051')
    name = re.findall(r"next: dramaturg labels \w+ (\S+)", output)[0]
    address = newcomer.address("50080")
    for position in range(2):
        print(f"# in the browser: PASS for item {position + 1}")
        _post(address, "WriteLabel", labelSetId=name, annotator="ana", position=position, label="PASS")
    answer = _post(address, "GetLabelSet", labelSetId=name)
    print(f"# in the browser: {answer['labelSet']['annotators']}")
    assert answer["labelSet"]["annotators"][0]["labelledCount"] == 2


def _post(address: str, method: str, **fields: object) -> dict[str, dict[str, list[dict[str, object]]]]:
    request = urllib.request.Request(
        f"http://{address}/dramaturg.api.evaluation.v1.LabelService/{method}",
        data=json.dumps(fields).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return dict(json.load(response))


NEWCOMERS: tuple[Callable[[Newcomer], None], ...] = (
    own_table,
    own_model,
    python_judge,
    typescript_judge,
    killed_run,
    two_versions,
    labels,
)


def main() -> int:
    """Plays the newcomers whose names are given, or all; returns the number of those that failed."""
    chosen = [play for play in NEWCOMERS if play.__name__ in sys.argv[1:] or not sys.argv[1:]]
    failed = 0
    for play in chosen:
        print(f"\n== {play.__name__}: {play.__doc__}", flush=True)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            newcomer, begun = Newcomer(Path(folder)), time.monotonic()
            try:
                play(newcomer)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed += 1
            finally:
                newcomer.leaves()
            seconds = time.monotonic() - begun
            failed += seconds > SECONDS
            print(f"== {newcomer.commands} commands, {seconds:.0f} s", flush=True)
    print(f"\n{len(chosen)} newcomers, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
