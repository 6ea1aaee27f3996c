"""`deeped compact`: changes to single entities folded into the parts."""

import argparse

from deeped_ray.commands.options import Answer, add_kb
from deeped_ray.compact import compact
from deeped_ray.knowledge.base import KnowledgeBase


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb(parser)


def run(args: argparse.Namespace) -> Answer:
    done = compact(KnowledgeBase(args.kb))
    told = f"{done['changes']} changes folded into {', '.join(done['made'])}. Restart or redeploy servers to use them."
    return done, told if done["changes"] else "There are no changes to fold."
