from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import grpc
from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub


def test_generation(fake_generation, generation_target):
    request = GenerateRequest(messages=[{"role": "MESSAGE_ROLE_USER", "text": "Hello"}])
    with grpc.insecure_channel(generation_target) as channel:
        assert GenerationServiceStub(channel).Generate(request).completion.text == "An answer."
    assert fake_generation.messages == ["Hello"]


def test_judge(fake_judge, judge_target):
    request = JudgeRequest(task={"goal": "Make tea"}, candidates=[{"id": "a", "text": "Boil water."}])
    with grpc.insecure_channel(judge_target) as channel:
        assert [one.candidate_id for one in JudgeServiceStub(channel).Judge(request)] == ["a"]
    assert fake_judge.requests == [request]
"""


def test_a_suite_that_names_the_fixtures_has_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["dramaturg.testing.fixtures"]\n')
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
