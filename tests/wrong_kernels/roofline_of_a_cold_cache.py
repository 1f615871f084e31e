"""All bytes come from memory, although a warm L2 has some of them."""

EXERCISE = "impossible-claims"
REASON = "l2-ignored"


def judge_claims(work, gpu, claims):
    n_bytes = work["bytes_read"] + work["bytes_written"]
    answers = []
    for claim in claims:
        memory_us = n_bytes / gpu["gb_per_s"] / 1e3
        least_us = max(memory_us, work["flops"] / gpu["tflop_per_s"][work["math"]] / 1e6)
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
