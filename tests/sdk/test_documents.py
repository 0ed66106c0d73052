"""The examples of the package's README compile and run as they are printed; only the port is replaced."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.sdk.test_typescript import PACKAGE, gateway, run_node
from tests.support.evaluation_samples import samples
from tests.support.stored_runs import address_of, store_run

pytestmark = pytest.mark.typescript

README = (PACKAGE / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```ts\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_there_is_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_compiles_and_runs(number: int, tmp_path: Path) -> None:
    store_run(address_of(tmp_path), "run", samples("decision"))
    async with gateway(tmp_path) as target:
        # Within the package, so that the example finds it by its name.
        source = PACKAGE / "dist" / "readme" / f"example_{number}.ts"
        await asyncio.to_thread(_write, source, EXAMPLES[number].replace("localhost:50051", target))
        options = "--target ES2022 --module NodeNext --moduleResolution NodeNext --strict --skipLibCheck"
        status, output, errors = await run_node(
            "node_modules/typescript/bin/tsc", *options.split(), str(source.relative_to(PACKAGE))
        )
        assert status == 0, output + errors
        status, output, errors = await run_node(str(source.with_suffix(".js").relative_to(PACKAGE)), "run")
    assert (status, errors) == (0, "")
    assert output.strip()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
