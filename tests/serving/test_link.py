import orjson

from deeped_ray.serving.link import link_work, write_link
from deeped_ray.serving.rel import rel_bytes, write_rel
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.work import Work
from deeped_ray.types import Candidate, Prediction

ADA = Candidate("Ada Lovelace", 7, "/Ada", prior=0.5, local=0.25, coherence=None, score=1.0, probability=0.75)
PREDICTION = Prediction(0, 3, "Ada", (ADA, ADA), attended=(("maths", 0.5),), support=((1, 0.25),))
ENTITY = b"""{"title":"Ada Lovelace","page_id":7,"url":"/Ada","prior":0.5,"local":0.25,"coherence":null,"score":1.0,"probability":0.75}"""


def test_one_document_gets_one_reply_with_its_reasons() -> None:
    asked = [LinkRequest(text="Ada", top=1)]
    reply = b"".join(write_link(asked, [[PREDICTION]], is_list=False, version={"model": "local"}))
    assert reply == (
        b'{"mentions":[{"start":0,"end":3,"surface":"Ada","entity":' + ENTITY + b',"reason":null,"candidates":['
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
    assert Work([LinkRequest(text="a" * 1000)], write_rel, rel_bytes).size == 1 + 2 + 20
