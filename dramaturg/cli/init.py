"""``dramaturg init``: a first evaluation to change into one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next

app = typer.Typer()

TEXTS, RUBRIC, CONFIG = "answers.csv", "rubric.toml", "dramaturg.toml"

FILES = {
    TEXTS: """\
task,model,text
"The kettle leaks. May I send it back?",first,"I am sorry about the leak. Yes, within 30 days: \
reply with your order number, and we send you a label today."
"The kettle leaks. May I send it back?",second,"Kettles are described on our website."
"When does the shop open on Sunday?",first,"We are closed on Sunday and open again on Monday at nine."
"When does the shop open on Sunday?",second,"Thank you! We are always glad to hear \
from you."
""",
    RUBRIC: """\
# What a good text is. Each [[criteria]] is one question to the judge, worded so that PASS is good.

[[criteria]]
id = "answers_the_question"
passes = "The reader learns what the case is, or what will happen and when."
fails = "The question is avoided, or the reader is only sent elsewhere."

[[criteria]]
id = "says_what_to_do_next"
passes = "The text says what the reader does next, or that nothing needs to be done."

# A rule decides without a model.
[[criteria]]
id = "at_most_60_words"
rule = { length = { at_most = 60, unit = "LENGTH_UNIT_WORDS" } }

[[criteria]]
id = "says_when"
rule = { matches = '(?i)\\b(today|tomorrow|[0-9]+ days|monday)\\b' }

# A criterion may have a scale in place of passes and fails.
[[criteria]]
id = "tone"
description = "How the text treats the reader."

[criteria.scale]
lowest = 1
highest = 5
anchors = [
  { value = 5, meaning = "Warm and respectful." },
  { value = 1, meaning = "Rude, or it blames the reader." },
]
""",
    CONFIG: """\
# The judge's model. Take the comment signs from one of these tables, and name this file:
# export DRAMATURG_CONFIG=dramaturg.toml

# With the key of a provider, in the environment variable OPENAI_API_KEY:
#
# [generation]
# default_model = "main/gpt-5-mini"
#
# [generation.providers.main]
# base_url = "https://api.openai.com/v1"
# api_key_env = "OPENAI_API_KEY"

# With a server of your own that speaks the OpenAI protocol (vLLM, Ollama, llama.cpp and others):
#
# [generation]
# default_model = "ours/my-model"
#
# [generation.providers.ours]
# base_url = "http://localhost:8000/v1"

# With the file of a model: add --judge-model ./model.gguf to the command; its extra is "local".
""",
}
"""The content of the files, by their names."""


@app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder. Made where there is none.")
    ] = Path(),
) -> None:
    """Writes a first evaluation into a folder: texts, a rubric and a configuration.

    answers.csv has a text a row, rubric.toml the criteria, and dramaturg.toml the judge's model, in comments.
    Files that are there are refused, and then nothing is written.

    Exit codes: 0 written, 2 a file is there, or cannot be written.

    For example:

        dramaturg init support
    """
    if there := [name for name in FILES if (folder / name).exists()]:
        fail(f"{folder / there[0]}: is there already; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in FILES.items():
            (folder / name).write_text(content, encoding="utf-8")
            echo(str(folder / name))
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror or error}")
    tell_next("eval", folder / TEXTS, "--criteria", folder / RUBRIC)
