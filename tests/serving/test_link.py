import orjson
import pytest
from fastapi.exceptions import RequestValidationError

from deeped_ray.serving.link import link_work, write_link
from deeped_ray.serving.rel import rel_bytes, write_rel
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.work import Work
from deeped_ray.types import Candidate, Prediction

ADA = Candidate("Ada Lovelace", 7, "/Ada", prior=0.5, local=0.25, coherence=None, score=1.0, probability=0.75)
PREDICTION = Prediction(0, 3, "Ada", (ADA, ADA), attended=(("maths", 0.5),), support=((1, 0.25),))
ENTITY = b"""{"title":"Ada Lovelace","page_id":7,"url":"/Ada","prior":0.5,"local":0.25,"coherence":null,"score":1.0,"probability":0.75,"source":"prior","wikidata":null}"""


def test_one_document_gets_one_reply_with_its_reasons() -> None:
    asked = [LinkRequest(text="Ada", top=1)]
    reply = b"".join(write_link(asked, [[PREDICTION]], is_list=False, version={"model": "local"}))
    assert reply == (
        b'{"mentions":[{"start":0,"end":3,"surface":"Ada","entity":'
        + ENTITY
        + b',"reason":null,"none_probability":0.0,"candidates":['
        b"" + ENTITY + b'],"attended":[{"word":"maths","weight":0.5}],"support":[{"mention":1,"weight":0.25}]}],'
        b'"version":{"model":"local"}}'
    )


def test_a_list_gets_a_list_and_only_the_reasons_that_were_asked_for() -> None:
    asked = [LinkRequest(text="Ada"), LinkRequest(text="Ada", explain=False, top=0)]
    explained, plain = orjson.loads(b"".join(write_link(asked, [[PREDICTION]] * 2, is_list=True, version={})))
    assert [len(explained["mentions"][0][name]) for name in ("candidates", "attended", "support")] == [2, 1, 1]
    assert [plain["mentions"][0][name] for name in ("candidates", "attended", "support")] == [[], [], []]


def test_the_size_of_work_is_in_mentions_given_or_expected_and_in_text_to_read() -> None:
    body = b'[{"text": "Ada met Charles.", "spans": [[0, 3], [8, 15]]}, {"text": ""}]'
    assert link_work(body, version={}).size == (1 + 2) + 1
    assert Work([LinkRequest(text="a" * 1000)], write_rel, rel_bytes).size == 1 + 1 + 20


@pytest.mark.parametrize("unit", [b"[],", b"1,", b"{},", b'"",', b'"a":1,', b'"\\\\",'])
@pytest.mark.parametrize("start", [b'{"text": "a", "spans": [', b'{"text": "a", ', b"["])
def test_bodies_with_far_too_many_signs_are_refused_unread(start: bytes, unit: bytes) -> None:
    with pytest.raises(RequestValidationError, match="far more lists, keys or values"):
        link_work(start + unit * 150_000, version={})


@pytest.mark.parametrize("sign", ["[", ",", "{", ":", '"', "\\", '\\"'])
def test_texts_may_have_any_number_of_signs(sign: str) -> None:
    text = sign * 200_000
    assert link_work(orjson.dumps({"text": text}), version={}).texts[0].text == text
