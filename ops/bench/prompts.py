"""Prompts of a known length that no cache has seen: common words, each about one token, in random order."""

import random

# Each of them is one token, with the space before it, in nearly every vocabulary.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government number "
    "night point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member law car "
    "city community name president team minute idea kid body information back parent face others level "
    "office door health person art war history party result change morning reason research girl guy "
    "moment air teacher force education foot boy age policy process music market sense nation plan "
    "college interest death experience effect use class control care field development role effort rate "
    "heart drug show leader light voice wife police mind price report decision son view relationship town "
    "road arm difference value building action season society tax director position player record paper "
    "space ground form event official matter center couple site project activity star table need court "
    "oil situation cost industry figure street image phone data picture practice piece land product doctor "
    "wall patient worker news test movie north love support technology step baby computer type attention "
    "film tree source truth summer order hair south window stone river garden bridge animal winter"
)
WORDS = _TEXT.split()


def make_prompts(count: int, own_tokens: int, shared_tokens: int, seed: int) -> list[str]:
    """`count` prompts of about `own_tokens` tokens each, after `shared_tokens` that all of them begin with."""
    chance = random.Random(seed)

    def words(number: int) -> list[str]:
        return [chance.choice(WORDS) for _ in range(number)]

    shared = words(shared_tokens)
    return [" ".join(shared + words(own_tokens)) for _ in range(count)]
