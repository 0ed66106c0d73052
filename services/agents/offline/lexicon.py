"""English word lists for cases in which similarity misleads."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPPOSITES = frozenset(
    frozenset(pair.split("/"))
    for pair in _words("""
    on/off in/out into/out to/from inside/outside indoors/outdoors open/close open/shut up/down wet/dry
    upper/lower left/right top/bottom front/back hot/cold warm/cool warm/cold heat/cool before/after
    start/stop start/end begin/end add/remove attach/detach insert/remove push/pull increase/decrease
    raise/lower high/low lock/unlock fill/empty more/less over/under above/below large/small big/small
    long/short thick/thin tighten/loosen fasten/unfasten connect/disconnect enable/disable install/uninstall
    plug/unplug wrap/unwrap fold/unfold zip/unzip tie/untie enter/exit enter/leave buy/sell send/receive
    light/dark black/white hard/soft clean/dirty with/without same/different many/few inner/outer
    clockwise/counterclockwise forward/backward forwards/backwards
    """)
)
"""Pairs of opposites. Embeddings of steps that differ by such a pair are similar."""

NEGATIONS = _words("not no never without don't dont doesn't won't can't cannot avoid stop nor none")
"""Words that negate a step."""

NUMBER_WORDS = _words("""
    zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred half
    twice thrice once first second third fourth fifth sixth last next final other another
""")
"""Words that distinguish similar steps: a second coat of paint does not duplicate the first."""

ABSENCE_OR_QUANTITY = _words("""
    not no non never without don't dont doesn't can't cannot avoid avoiding avoided free low less least
    minimal minimum maximum few fewer only except excluding instead rather under over below above within more
    most
    limited limit lack lacking skip skipping nothing none half double twice single one two three four five six
    seven eight nine ten several many much enough cheap cheaply budget quick quickly fast slow slowly easy
    easily small large big little short long
""")
"""Words of constraints of absence or quantity."""

FUNCTION_WORDS = _words("""
    a an and as at be by do for from get go have how if in into is it its make of on or out so some that the
    their them then there this to up use used using want with you your when while where which who will can
""")
"""Words that carry little of a step's or a constraint's content."""
