"""Look around in a knowledge base, cell by cell: open this file in an editor that runs `# %%` cells, or run it.

python examples/explore.py [KB]
"""

# %% Open the knowledge base that `make demo` made, or the one on the command line
import sys

import deeped_ray as deeped

kb = deeped.open(sys.argv[1] if len(sys.argv) > 1 else "kb/mini")

# %% What can a name mean, and how often?
for sense in kb.mention("Montreal").candidates:
    print(f"{sense.title}: {sense.prior:.0%} of links")

# %% A misspelt name
for alike in kb.resembling("Montreal Canadeins", count=3):
    print(f"{alike.title}: {alike.resemblance:.2f}")

# %% Which entities are close to one, to a mix of two, or to a text?
for label, found in {
    "near one": kb.related("Stanley Cup", count=3),
    "near both": kb.related(["Stanley Cup", "Montreal"], count=3),
    "near a text": kb.related(text="a goalkeeper on the ice", count=3),
}.items():
    print(f"{label}: {', '.join(f'{each.title} {each.similarity:.2f}' for each in found)}")

# %% The same name, by the prior alone, by its context, and together with the other names
text = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
for model in ("prior", "local", "global"):
    titles = [mention.entity.title for mention in kb.link(text, model=model) if mention.entity]
    print(f"{model}: {', '.join(titles)}")

# %% Why? The words that counted, and what the other candidates got
montreal = kb.link(text)[0]
print("looked at", ", ".join(f"{word} {weight:.2f}" for word, weight in montreal.attended[:5]))
for candidate in montreal.candidates:
    print(f"{candidate.title}: prior {candidate.prior:.2f}, context {candidate.local:.2f}, {candidate.probability:.2f}")

# %% Many texts at once, and mentions of your own
own = deeped.Document("my own", "Apple was picked in the orchard.", (deeped.Mention(0, 5),))
for mentions in kb.link_all([text, own], threshold=0.5):
    print([(mention.surface, mention.entity.title if mention.entity else None) for mention in mentions])
