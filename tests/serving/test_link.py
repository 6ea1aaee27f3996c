import orjson
import pytest
from fastapi.exceptions import RequestValidationError

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.views import answer_of
from deeped_ray.serving.link import link_work, write_link
from deeped_ray.serving.rel import rel_bytes, write_rel
from deeped_ray.serving.schemas import LinkRequest
from deeped_ray.serving.work import Work
from deeped_ray.types import Candidate, LinkerKind, Prediction

ADA = Candidate("Ada Lovelace", 7, "/Ada", prior=0.5, local=0.25, coherence=None, score=1.0, probability=0.75)
PREDICTION = Prediction(0, 3, "Ada", (ADA, ADA), attended=(("maths", 0.5),), support=((1, 0.25),))
ENTITY = b"""{"title":"Ada Lovelace","page_id":7,"url":"/Ada","prior":0.5,"local":0.25,"coherence":null,"score":1.0,"probability":0.75,"source":"prior","wikidata":null}"""


def test_a_prediction_is_told_with_its_reasons() -> None:
    assert orjson.dumps(answer_of(PREDICTION, top=1)) == (
        b'{"start":0,"end":3,"surface":"Ada","entity":'
        + ENTITY
        + b',"reason":null,"none_probability":0.0,"candidates":['
        b"" + ENTITY + b'],"attended":[{"word":"maths","weight":0.5}],"support":[{"mention":1,"weight":0.25}]}'
    )


@pytest.mark.parametrize("kind", ["global", "local", "prior"])
@pytest.mark.parametrize(("top", "explain", "threshold"), [(7, True, 0.0), (0, False, 0.0), (1, True, 0.9)])
def test_the_reply_is_what_the_predictions_say(
    mini_kb: KnowledgeBase, kind: LinkerKind, top: int, explain: bool, threshold: float
) -> None:
    linker = Linker.open(mini_kb, kind)
    text = 'Montreal met Toronto "on ice", Zorblatt and Canadeins in the Stanley Cup.'
    spans = [(13, 20), (0, 8), (32, 40), (45, 54), (62, 73)]
    document = linker.document(text, spans)
    (found,) = linker.link_batch([document], explain=explain)
    asked = [LinkRequest(text=text, spans=spans, top=top, explain=explain)]
    reply = b"".join(write_link(asked, [found.at_least(threshold, top=top)], is_list=False, version={"model": kind}))
    expected = [answer_of(each.at_least(threshold), top=top, explain=explain) for each in found]
    assert reply == b'{"mentions":' + orjson.dumps(expected) + b',"version":' + orjson.dumps({"model": kind}) + b"}"


def test_a_list_gets_a_list_and_only_the_reasons_that_were_asked_for(linker: Linker) -> None:
    text = "Montreal met Toronto in the Stanley Cup."
    answers = linker.link_batch([linker.document(text)] * 2)
    asked = [LinkRequest(text=text), LinkRequest(text=text, explain=False, top=0)]
    explained, plain = orjson.loads(b"".join(write_link(asked, answers, is_list=True, version={})))
    assert all(explained["mentions"][0][name] for name in ("candidates", "attended", "support"))
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
