from __future__ import annotations

import pytest

from gateway.judges.targets import check_pattern, is_permitted


@pytest.mark.parametrize(
    ("pattern", "permitted", "refused"),
    [
        (
            "*.judges.svc:50051",
            ["critic.judges.svc:50051", "a_b.judges.svc:50051"],
            [
                "critic.judges.svc:443",
                "judges.svc:50051",
                "a.b.judges.svc:50051",
                "critic.judges.svc.evil.example:50051",
                "dns:///critic.judges.svc:50051",
                "unix:/run/critic.judges.svc:50051",
                "critic.judges.svc:50051,10.0.0.1:50051",
                "Critic.judges.svc:50051",
                "critic.judges.svc",
                "critic.judges.svc:50051/x",
                "critic.judges.svc:50051\n",
                "",
            ],
        ),
        (
            "127.0.0.1:*",
            ["127.0.0.1:1", "127.0.0.1:65535"],
            [
                "127.0.0.2:1",
                "127.0.0.1:0",
                "127.0.0.1:65536",
            ],
        ),
        (
            "*:50051",
            ["critic:50051"],
            [
                "10.0.0.1:50051",
                "2130706433:50051",
                "0x7f000001:50051",
                "[::1]:50051",
            ],
        ),
        ("*.*.*.*:50051", ["a.b.c.d:50051"], ["10.0.0.1:50051", "0x7f.0.0.0x1:50051", "1.2.3.4:50051"]),
        ("[fd00::7]:50051", ["[fd00::7]:50051"], ["[fd00::8]:50051"]),
    ],
)
def test_addresses_are_permitted_by_patterns(pattern: str, permitted: list[str], refused: list[str]) -> None:
    check_pattern(pattern)
    assert [target for target in permitted if not is_permitted(target, ["other:1", pattern])] == []
    assert [target for target in refused if is_permitted(target, ["other:1", pattern])] == []


def test_no_pattern_permits_no_address() -> None:
    assert not is_permitted("critic:50051", [])


@pytest.mark.parametrize("pattern", ["critic", "critic.*", "cri*ic:1", "dns:///a:1", "a:0", ":1", "a..b:1"])
def test_a_text_that_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no pattern"):
        check_pattern(pattern)
