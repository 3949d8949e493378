"""A folder as downloaded from Athena: tabs, no quoting, quotes in names."""

from pathlib import Path

CONCEPT = """\
concept_id\tconcept_name\tdomain_id\tvocabulary_id\tconcept_class_id\tstandard_concept\t\
concept_code\tvalid_start_date\tvalid_end_date\tinvalid_reason
4329847\tMyocardial infarction\tCondition\tSNOMED\tDisorder\tS\t22298006\t20020131\t20991231\t
312327\tAcute myocardial infarction\tCondition\tSNOMED\tDisorder\tS\t57054005\t20020131\t20991231\t
4275423\t"Bird's beak" esophagus\tCondition\tSNOMED\tDisorder\tS\t235610009\t20020131\t20991231\t
4100001\tHeart attack, unspecified\tCondition\tSNOMED\tDisorder\t\t194797004\t20020131\t20040731\tU
4100002\tPossible infarct\tCondition\tSNOMED\tDisorder\t\t194798009\t20020131\t20040731\tD
4100003\tRetired in favour of a drug\tCondition\tSNOMED\tDisorder\t\t194799001\t20020131\t\
20040731\tU
4100004\tGone\tCondition\tSNOMED\tDisorder\t\t194800002\t20020131\t20040731\tD
45571656\tMyocardial infarction, unspecified\tCondition\tICD10CM\t5-char billing code\t\tI21.9\t\
20171001\t20991231\t
45533436\tST elevation "STEMI" with shock\tCondition\tICD10CM\t4-char billing code\t\tI21.3\t\
20071001\t20991231\t
45500000\tNot mapped\tObservation\tICD10CM\t4-char billing code\t\tZ99.8\t20071001\t20991231\t
1112807\taspirin\tDrug\tRxNorm\tIngredient\tS\t1191\t19700101\t20991231\t
35605482\taspirin 81 MG [Médicament]\tDrug\tRxNorm Extension\tClinical Drug\tS\tOMOP1\t\
19700101\t20991231\t
21600001\tPLATELET INHIBITORS\tDrug\tATC\tATC 4th\tC\tB01AC\t19700101\t20991231\t
"""
SYNONYM = """\
concept_id\tconcept_synonym_name\tlanguage_concept_id
4329847\tHeart attack\t4180186
4329847\tInfarto de miocardio\t4182511
4329847\tMyocardial infarction\t4180186
4329847\t"MI"\t4180186
1112807\tacetylsalicylic acid\t4180186
1112807\tASA\t0
35605482\tbaby aspirin\t4093769
"""
RELATIONSHIP = """\
concept_id_1\tconcept_id_2\trelationship_id\tvalid_start_date\tvalid_end_date\tinvalid_reason
312327\t4329847\tIs a\t20020131\t20991231\t
4275423\t4329847\tIs a\t20020131\t20040101\tD
4329847\t312327\tSubsumes\t20020131\t20991231\t
4329847\t4329847\tMaps to\t20020131\t20991231\t
312327\t312327\tMaps to\t20020131\t20991231\t
45571656\t4329847\tMaps to\t20171001\t20991231\t
45533436\t312327\tMaps to\t20071001\t20991231\t
45533436\t4275423\tMaps to\t20071001\t20991231\t
4100001\t4329847\tConcept replaced by\t20040731\t20991231\t
4100001\t4329847\tMaps to\t20040731\t20991231\t
4100002\t312327\tMaps to\t20040731\t20991231\t
4100003\t1112807\tConcept replaced by\t20040731\t20991231\t
1112807\t21600001\tIs a\t19700101\t20991231\t
35605482\t1112807\tIs a\t19700101\t20991231\t
45500000\t77\tMaps to\t19700101\t20991231\t
"""
FILES = {"CONCEPT": CONCEPT, "CONCEPT_SYNONYM": SYNONYM, "CONCEPT_RELATIONSHIP": RELATIONSHIP}


def write_athena(folder: Path, **changed: str | None) -> Path:
    """Write the files, some with other contents, or left out."""
    folder.mkdir(exist_ok=True)
    for name, content in (FILES | changed).items():
        if content is not None:
            (folder / f"{name}.csv").write_text(content, encoding="utf8")
    return folder
