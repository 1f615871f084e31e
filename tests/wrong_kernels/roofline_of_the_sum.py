"""The time of the bytes is added to that of the operations, although a kernel does both at once."""

EXERCISE = "impossible-claims"
REASON = "added"


def judge_claims(work, gpu, claims):
    n_bytes = work["bytes_read"] + work["bytes_written"]
    answers = []
    for claim in claims:
        from_l2 = claim["l2"] == "warm" and n_bytes <= gpu["l2_bytes"]
        memory_us = n_bytes / gpu["l2_gb_per_s" if from_l2 else "gb_per_s"] / 1e3
        least_us = memory_us + work["flops"] / gpu["tflop_per_s"][work["math"]] / 1e6
        if "us" in claim:
            claimed_us = claim["us"]
        elif "gb_per_s" in claim:
            claimed_us = n_bytes / claim["gb_per_s"] / 1e3
        elif "tflop_per_s" in claim:
            claimed_us = work["flops"] / claim["tflop_per_s"] / 1e6
        else:
            claimed_us = claim["baseline_us"] / claim["times_faster"]
        answers.append((least_us, claimed_us < least_us))
    return answers
