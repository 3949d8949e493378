"""Composite mentions: their readings, and further members of a family."""

import pytest

from spacy_bioel.entities.composites import end_with_members, split_composite


@pytest.mark.parametrize(
    ("mention", "best"),
    [
        # Shared words at the end.
        ("breast and ovarian cancer", ("breast cancer", "ovarian cancer")),
        ("lung as well as colon cancer", ("lung cancer", "colon cancer")),
        (
            "colorectal, endometrial, and ovarian cancers",
            ("colorectal cancers", "endometrial cancers", "ovarian cancers"),
        ),
        ("Smith/Jones eye syndrome", ("Smith eye syndrome", "Jones eye syndrome")),
        ("either renal & hepatic failure", ("renal failure", "hepatic failure")),
        ("atrial (AF) and septal (SD) defects", ("atrial defects", "septal defects")),
        ("aplasia and cysts of the thymus", ("aplasia of the thymus", "cysts of the thymus")),
        # Shared words at the beginning.
        ("cancer of the breast and ovary", ("cancer of the breast", "cancer of the ovary")),
        ("hepatitis B and A", ("hepatitis B", "hepatitis A")),
        ("type I, II and III", ("type I", "type II", "type III")),
        ("defects (C2 and C7)", ("defects C2", "defects C7")),
        ("IL-2 and -6", ("IL-2", "IL-6")),
        ("ERK1/2", ("ERK1", "ERK2")),
        ("caspase-3/7", ("caspase-3", "caspase-7")),
        ("SMAD1/5/8", ("SMAD1", "SMAD5", "SMAD8")),
        ("S100A8/A9", ("S100A8", "S100A9")),
        ("IL-17A/F", ("IL-17A", "IL-17F")),
        ("HIF-1α/2α", ("HIF-1α", "HIF-2α")),
        ("Akt/mTOR", ("Akt", "mTOR")),
        ("IL-1α/β", ("IL-1α", "IL-1β")),
        ("HDAC1, 2 and 3", ("HDAC1", "HDAC2", "HDAC3")),
        ("FGFR1-3", ("FGFR1", "FGFR2", "FGFR3")),
        ("Notch2-3 receptors", ("Notch2 receptors", "Notch3 receptors")),
        # At both ends.
        ("type 1 and type 2 diabetes", ("type 1 diabetes", "type 2 diabetes")),
        ("omega-3 and -6 fatty acids", ("omega-3 fatty acids", "omega-6 fatty acids")),
        # Nothing is shared.
        ("nausea/vomiting", ("nausea", "vomiting")),
        # Shared parts of words.
        ("B- and T-cell lymphoma", ("B-cell lymphoma", "T-cell lymphoma")),
        ("B- and T lymphocytes", ("B lymphocytes", "T lymphocytes")),
        ("hypo- or hyperthyroidism", ("hypothyroidism", "hyperthyroidism")),
        ("oto- and nephrotoxicity", ("ototoxicity", "nephrotoxicity")),
        # Words without meaning are left out; fixed pairs stay together.
        ("colon and some other cancers", ("colon cancers", "cancers")),
        ("both the heart and the liver disease", ("heart disease", "liver disease")),
        ("lung and head and neck cancers", ("lung cancers", "head and neck cancers")),
    ],
)
def test_best_reading(mention, best):
    assert split_composite(mention)[0] == best


@pytest.mark.parametrize(
    ("mention", "readings"),
    [
        (
            "heart and central nerve defects",
            [
                ("heart nerve defects", "central nerve defects"),
                ("heart defects", "central nerve defects"),
                ("heart", "central nerve defects"),
            ],
        ),
        (
            "acute renal failure and hepatic failure",
            [
                ("acute renal failure", "acute hepatic failure"),
                ("acute renal failure", "hepatic failure"),
                ("acute renal failure", "acute renal hepatic failure"),
            ],
        ),
        (  # the reading without shared words is fourth at the latest
            "pain and v w x y z",
            [
                ("pain w x y z", "v w x y z"),
                ("pain z", "v w x y z"),
                ("pain x y z", "v w x y z"),
                ("pain", "v w x y z"),
            ],
        ),
    ],
)
def test_all_readings(mention, readings):
    assert split_composite(mention) == readings


@pytest.mark.parametrize(
    "mention",
    [
        "", "aspirin", "1,2-xylene", "acute, severe pain", "head and neck cancer",
        "hand, foot and mouth disease", "and", "and/or", "/", "a and", "- and -", "pain and pain",
        "sand", "Anderson or", "(and)", "c/o", "a and b", "GSTA1-1", "KRTAP10-3", "cdc4-10",
        "Aβ1-42",
    ],
)  # fmt: skip
def test_nothing_to_split(mention):
    assert split_composite(mention) == []


@pytest.mark.parametrize(
    ("text", "mention", "whole"),
    [
        ("SMAD2/3 binds", "SMAD2", "SMAD2/3"),
        ("Smad1/5/8.", "Smad1", "Smad1/5/8"),
        ("BRCA1/2-mutated", "BRCA1", "BRCA1/2"),
        ("IL-6 and -8 were", "IL-6", "IL-6 and -8"),
        ("IL-1, -6 and -8;", "IL-1", "IL-1, -6 and -8"),
        ("IL-17A/F", "IL-17A", "IL-17A/F"),
        ("S100A8/A9", "S100A8", "S100A8/A9"),
        ("hepatitis A, B, and C virus", "hepatitis A", "hepatitis A, B, and C"),
        ("type I and III collagen", "type I", "type I and III"),
        ("IL-1α/β was", "IL-1α", "IL-1α/β"),
        ("HLA-A, B and C", "HLA-A", "HLA-A, B and C"),
        ("HDAC1, 2 and 3 were", "HDAC1", "HDAC1, 2 and 3"),
        ("TLR2, 3, 4, or 5.", "TLR2", "TLR2, 3, 4, or 5"),
        ("caspase 3 and 7 in", "caspase 3", "caspase 3 and 7"),
        # Not members of a family.
        ("IL-6/5% serum", "IL-6", "IL-6"),
        ("BRCA1/5 ng", "BRCA1", "BRCA1"),
        ("IL6/24 h.", "IL6", "IL6"),
        ("MMP-9/2 weeks", "MMP-9", "MMP-9"),
        ("BRCA1 and 16 exons", "BRCA1", "BRCA1"),
        ("IL-6 and 8 of them", "IL-6", "IL-6"),
        ("IL-6, 10 and 20 ng/ml", "IL-6", "IL-6"),
        ("COVID-19 and 3 were", "COVID-19", "COVID-19"),
        ("p53/p21", "p53", "p53"),
        ("K14-Cre/α-catenin", "K14", "K14"),
        ("Wnt3a/β-catenin", "Wnt3a", "Wnt3a"),
        ("diabetes I and a", "diabetes I", "diabetes I"),
    ],
)
def test_members_of_a_family(text, mention, whole):
    assert text[: end_with_members(text, 0, len(mention))] == whole
