"""`deeped wikidata`: Wikidata ids for the entities of a knowledge base."""

import argparse

from deeped_ray.commands.options import Answer, add_kb
from deeped_ray.corpus.wikidata import WikidataConfig, add_wikidata
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import add_flags, flags_given, plain
from deeped_ray.running.console import table
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)
    add_flags(parser, WikidataConfig)


def run(args: argparse.Namespace) -> Answer:
    config = WikidataConfig(**flags_given(args, WikidataConfig))
    if not (config.page_props or config.wikidata):
        raise DeepEdError("Give --page-props FILE, a dump of that table, or --wikidata FILE, a TSV or Parquet of ids.")
    kb = KnowledgeBase(args.kb)
    kb.settings = {"corpus": plain(config)}
    summary = add_wikidata(kb, config)
    named = summary.pop("wikidata_conflicts_named")
    told = table(["holds", "number"], list(summary.items()))
    return {**summary, "conflicts": named}, "\n".join([told, *(f"conflict: {each}" for each in named)])
