"""J against the steps of the paper's optimisation, with the closed form as a line: docs/loss-curves.png.

python benchmarks/loss_curves.py --kb KB --out docs/loss-curves.png
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from _harness import parser_of

from deeped_ray.embeddings import closed_form, reference
from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.config import ReferenceConfig
from deeped_ray.embeddings.evidence import PAGE_AND_LINKS, Bags, EvidenceReader
from deeped_ray.embeddings.objective import exact_objective, noise_cdf
from deeped_ray.embeddings.words import Words
from deeped_ray.knowledge.base import KnowledgeBase

STEPS = [0, 5, 10, 20, 40, 60, 100, 150, 200, 300, 400]
LINK_STEPS = [0, 10, 25, 50, 100, 200]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/loss-curves.png"))
    parser.add_argument("--entities", type=int, default=100, metavar="N")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kb = KnowledgeBase(args.kb)
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    reader, cdf = EvidenceReader(corpus, words), noise_cdf(words.counts, alpha=0.6)
    with_both = np.flatnonzero(kb.open("vectors").array("evidence") == PAGE_AND_LINKS)
    evidence = reader.read(np.sort(np.random.default_rng(0).choice(with_both, args.entities, replace=False)))
    pool = words.vectors[np.searchsorted(cdf, (np.arange(4096) + 0.5) / 4096)]
    matrix = torch.from_numpy(np.array(words.vectors))

    def loss(vectors: np.ndarray, bags: Bags) -> float:
        pairs = [bags.bag(row) for row in range(len(bags))]
        return float(
            np.mean(
                [
                    exact_objective(z, words.vectors[rows], counts, pool, gamma=0.1)
                    for z, (rows, counts) in zip(vectors, pairs, strict=True)
                ]
            )
        )

    curves: dict[str, list[tuple[float, float]]] = {}
    for start in ("title", "random"):
        points = []
        for steps in STEPS:
            config = ReferenceConfig(page_steps=steps, initialization=start)
            problems = reference.problems_of(evidence, range(args.entities), config)
            (vectors,) = reference.stages(problems, matrix, cdf, config, [0])
            points.append((loss(vectors.numpy(), evidence.page), loss(vectors.numpy(), evidence.links)))
        config = ReferenceConfig(initialization=start)
        problems = reference.problems_of(evidence, range(args.entities), config)
        later = list(reference.stages(problems, matrix, cdf, config, LINK_STEPS))[1:]
        points += [(loss(vectors.numpy(), evidence.page), loss(vectors.numpy(), evidence.links)) for vectors in later]
        curves[start] = points
    noise = closed_form.noise_of(words.vectors, words.counts, alpha=0.6)
    contrasts = torch.from_numpy(closed_form.contrast(words.vectors, noise, ridge=ClosedFormConfig().ridge))
    ours = closed_form.embed(evidence, contrasts, ClosedFormConfig())

    x = STEPS + [400 + steps for steps in LINK_STEPS[1:]]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for place, (axis, name, bags) in enumerate(
        zip(axes, ("page words", "words around links"), (evidence.page, evidence.links), strict=True)
    ):
        for start, points in curves.items():
            axis.plot(x, [point[place] for point in points], marker=".", label=f"sampled steps from {start}")
        axis.axhline(loss(ours, bags), color="black", linestyle="--", label="closed form, no steps")
        axis.axvline(400, color="grey", linewidth=0.5)
        axis.set(title=f"J on {name}", xlabel="steps: 400 on the page, then on links", yscale="log")
        axis.legend()
    figure.tight_layout()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
