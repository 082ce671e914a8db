"""Names and meanings of the six induction scores, and the rule of what an induction head is."""

from engine.heads.induction import INDUCTION_FROM

RULE = f"prefix matching from {INDUCTION_FROM} and copying above chance"
TITLES = {
    "prefix_matching": "Prefix matching",
    "copying": "Copying",
    "previous_token": "Previous token",
    "duplicate_token": "Duplicate token",
    "ov_eigen": "OV copying eigenvalues",
    "qk_trace": "QK trace",
}
ABOUT = {
    "prefix_matching": "Looks at what followed an earlier copy: 0 no attention, 1 all of it.",
    "copying": "Of what it raises, the share that it looks at: 0% none, 100% all; 4% by chance.",
    "previous_token": "Looks at the token just before: 0 no attention, 1 all of it.",
    "duplicate_token": "Looks at earlier copies of the same token: 0 no attention, 1 all of it.",
    "ov_eigen": "Copying, by its weights alone: 1 raises whatever it looks at, −1 lowers it.",
    "qk_trace": "Prefix matching, by weights alone: looks for what came after its own token. No unit.",
}
