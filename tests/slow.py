"""Which tests `make test` leaves to `make test-slow`, `make thorough` and `make compat`.

`make test` has to find what a normal change to the tools or the core lessons can break; the aim is eight
minutes on two cores. `make test-slow` adds the deeper lessons and what takes long. CI runs both, and the aim
is half an hour for them together. `make thorough` is for releases. The comment above each entry says what the
test adds. A name stands for a test function with all its parameters, and `ALL` for every test in the
file. A name with its parameters in brackets is one test. A test that is listed twice belongs to the rarer
command. Tests can also be marked `thorough` where they are.
"""

from __future__ import annotations

ALL = ("*",)

SLOW: dict[str, tuple[str, ...]] = {
    # The emulator with PyTorch's own headers, which compile for half a minute; `make test` uses our stand-in.
    "cuda/test_emulator.py": ("test_a_wrapper_takes_cpu_tensors",),
    "cuda/test_extension.py": ("test_an_unsupported_type_is_an_error",),
    # Whole pytest runs that compare their random numbers.
    "test_conftest.py": (
        "test_a_run_repeats_and_another_seed_draws_other_numbers",
        "test_kernels_that_tests_start_are_seeded",
    ),
    # A sum of ten million terms against the bound that smaller sums test, too.
    "check/test_bounds.py": ("test_ten_million_terms",),
    # Thirty ways to compute with torch around a kernel; attempts in labs 06 and 09 try one each.
    "exercises/test_torch_work.py": ALL,
    # Each of lab 04's formulas, compiled with each option; `make test` tries the questions about them.
    "exercises/test_lab04.py": ("test_every_change_leaves_its_mark",),
    # Attempts at the labs of the deeper lessons; their wrong kernels are marked where they are.
    "exercises/test_lab07.py": ALL,
    "exercises/test_lab08.py": ALL,
    "exercises/test_lab09.py": ALL,
    "exercises/test_lab10.py": ALL,
    "exercises/test_lab11.py": ALL,
    "exercises/test_lab12.py": ALL,
    "exercises/test_lab13.py": ALL,
    "exercises/test_lesson12.py": ALL,
    # Lesson 11 on two simulated GPUs; `make test` asks each of its cells what it would do there.
    "test_capabilities.py": ("test_lesson_11_runs_on_a_simulated_gpu",),
    # The deeper lessons; two lessons with the second set of records; broken lessons, which nbval must notice.
    "test_notebooks.py": (
        "test_lesson[07_timers]",
        "test_lesson[08_builds]",
        "test_lesson[09_wide_rows]",
        "test_lesson[10_another_gpu]",
        "test_lesson[11_matmul]",
        "test_lesson[12_attention]",
        "test_lesson[13_verify]",
        "test_a_lesson_prints_the_same_from_the_other_records[03_triton-h100]",
        "test_a_lesson_prints_the_same_from_the_other_records[06_fusion-h100]",
        "test_a_broken_copy_fails",
        "test_an_edited_kernel_is_not_given_the_recorded_times",
    ),
    # The deeper lessons' exercises.
    "lessons/test_exercises.py": (
        "test_every_solution_passes_and_no_starter_does[07_timers]",
        "test_every_solution_passes_and_no_starter_does[08_builds]",
        "test_every_solution_passes_and_no_starter_does[09_wide_rows]",
        "test_every_solution_passes_and_no_starter_does[10_another_gpu]",
        "test_every_solution_passes_and_no_starter_does[11_matmul]",
        "test_every_solution_passes_and_no_starter_does[12_attention]",
        "test_every_solution_passes_and_no_starter_does[13_verify]",
    ),
    # The deeper lessons' kernels in all shapes, and the simulator of lesson 09.
    "kernels/test_attention.py": ("test_every_valid_case_is_right", "test_unsupported_inputs_are_refused"),
    "kernels/test_matmul.py": ("test_every_valid_case_is_right", "test_unsupported_inputs_are_refused"),
    "kernels/test_places.py": ALL,
    "widgets/test_attention.py": ("test_without_gpu_and_record_every_position_is_checked_and_compiled",),
    # The deeper lessons' labs.
    "test_labs.py": (
        "test_a_solution_runs_and_passes[07_timers]",
        "test_a_solution_runs_and_passes[08_builds]",
        "test_a_solution_runs_and_passes[09_wide_rows]",
        "test_a_solution_runs_and_passes[10_another_gpu]",
        "test_a_solution_runs_and_passes[11_matmul]",
        "test_a_solution_runs_and_passes[12_attention]",
        "test_a_solution_runs_and_passes[13_verify]",
    ),
    # The guide's examples; `make test` runs README's.
    "test_project.py": ("test_the_slider_examples_run_without_a_gpu[docs/guide/sliders.md]",),
    # Whole lessons, a lab, all kinds of questions, and axe-core in JupyterLab; a batch that is still running;
    # a batch's pages on a wide screen and in the dark; a page in Firefox. `make test` opens the lessons'
    # pages, and JupyterLab with the sliders of a learner's own kernel.
    "test_browser.py": (
        "test_a_lab_in_jupyterlab",
        "test_questions_in_jupyterlab",
        "test_notebook_7",
        "test_figures_follow_jupyterlabs_dark_theme",
        "test_the_index_of_a_batch_draws_its_grid_and_reloads",
        "test_the_grid_of_lesson_02",
        "test_the_kernels_of_lesson_03",
        "test_the_ptx_of_lesson_04",
        "test_sliders_and_questions_are_accessible_in_jupyterlab",
        "test_a_page_works_in_firefox",
        "test_the_pages_of_a_batch_follow_the_dark_theme",
        "test_the_pages_of_a_batch_are_accessible[1000-light]",
    ),
    # Google's widget manager in Chromium, with Colab's packages; npm and pip fetch both once.
    "test_colab_widgets.py": ALL,
    # Verifications of a quarter of a minute each; `make test` has one for each kind of verdict.
    "workbook/test_verify.py": (
        "test_every_format_is_judged_from_end_to_end[flashinfer-trace]",
        "test_every_format_is_judged_from_end_to_end[sol-execbench]",
        "test_a_candidate_that_hangs_is_stopped",
        "test_a_gpu_that_others_have_filled_is_no_mistake",
        "test_results_of_all_forms",
        "test_other_parameters_are_tried_and_taken_back",
        "test_a_models_buffers_are_compared",
        "test_a_fraud_cannot_read_the_problem_or_the_verifiers_memory",
        "test_a_kernel_that_asks_about_the_gpu_and_is_autotuned_is_judged",
        "test_frauds_are_found_and_compared_with_the_benchmarks_own_tolerance[stale-result]",
        "test_frauds_are_found_and_compared_with_the_benchmarks_own_tolerance[never-written]",
        "test_a_random_reference_is_not_judged",
        "test_a_cuda_solution_is_compiled_and_judged",
        "test_a_slow_kernel_is_not_rejected_where_it_is_interpreted",
        "test_cuda_code_may_use_all_of_pytorchs_headers",
        "test_what_needs_a_gpu_is_not_judged_without_one",
        "test_frauds_are_found_and_compared_with_the_benchmarks_own_tolerance[changed-input]",
        "test_frauds_are_found_and_compared_with_the_benchmarks_own_tolerance[low-precision]",
    ),
    # A quarter of the corpus; `make thorough` judges all of it.
    "workbook/test_verify_corpus.py": ALL,
    # Fourteen lines, each in a process of its own; the corpus has kernels that contain them.
    "workbook/test_verify_watch.py": ("test_what_no_kernel_needs_is_noticed",),
    # More kernels, each judged as a whole; `make test` judges four of test_verify's.
    "workbook/test_verify_evasions.py": (
        "test_a_fraud_that_evades_a_check_is_found",
        "test_an_honest_kernel_that_looks_odd_is_accepted",
        "test_a_limit_is_reported",
        "test_a_model_without_the_references_parameters_has_a_limit",
    ),
    "workbook/test_verify_honest.py": (
        "test_an_honest_kernel_is_accepted",
        "test_a_fraud_is_rejected",
        "test_what_the_emulator_finds_is_wrong",
        "test_a_kernel_that_asks_for_a_gpu_is_not_judged",
        "test_a_kernel_may_round_to_narrow_types",
        "test_sources_may_bind_their_functions_themselves",
        "test_a_kernel_may_call_libdevice_and_must_fit_shapes",
        "test_a_name_that_only_nvcc_knows_is_not_judged",
    ),
    "workbook/test_verify_gpumode.py": (
        "test_memory_for_results_need_not_be_read",
        "test_large_cases_are_called_again_and_with_other_values",
        "test_a_given_tensor_that_is_returned_must_have_the_right_values",
        "test_a_root_is_no_decomposition",
        "test_results_that_the_reference_does_not_determine_are_not_judged",
    ),
    # Solutions in float8 and with numbers among their inputs, judged as a whole.
    "workbook/test_verify_formats.py": (
        "test_a_number_among_the_inputs_may_not_be_ignored",
        "test_inputs_and_results_may_be_float8",
    ),
    # The corpus itself, run under a naive harness. One of its builds is by torch.compile's C++ backend.
    "workbook/test_corpus.py": (
        "test_a_naive_harness_accepts_it",
        "test_its_results_are_wrong",
        "test_a_fraud_runs",
        "test_an_honest_kernel_matches_its_reference",
        "test_an_honest_kernel_that_takes_long_to_build",
    ),
    # Every position of the sliders compiled; `make test` compiles some, and all of lesson 12's sliders.
    "widgets/test_product.py": ("test_without_gpu_and_record_every_position_is_compiled_and_none_has_a_bar",),
    "widgets/test_ptx.py": (
        "test_every_position_is_compiled_again",
        "test_a_page_has_the_warps_up_to_where_registers_spill",
    ),
    # Every record of both GPUs.
    "workbook/test_catalogue.py": ("test_the_command_lists_every_record_of_both_gpus",),
    # The browser over the whole book; `make test` has a book of two lessons, under axe-core on a wide screen.
    "workbook/test_book.py": (
        "test_links_and_sizes_of_the_whole_book",
        "test_the_small_book_is_accessible[400-dark]",
    ),
    # Kills, interrupts and resume.
    "workbook/test_batch.py": (
        "test_hanging_cells_are_stopped_and_reported",
        "test_ctrl_c_keeps_finished_notebooks",
        "test_an_old_output_stays_until_the_new_one_is_complete",
    ),
    "workbook/test_executor.py": (
        "test_a_killed_runner_leaves_no_process_and_no_temporary_file",
        "test_processes_in_other_sessions_end_with_their_point",
        "test_a_killed_worker_loses_only_its_own_point",
        "test_retries_run_a_point_that_died_again",
        "test_an_interrupt_at_any_moment_leaves_no_process",
        "test_sigterm_while_importing_ends_with_130",
        "test_points_that_share_a_gpu_are_marked",
    ),
    "workbook/test_kernel_client.py": (
        "test_a_reply_that_arrives_while_an_output_widget_is_filled_is_seen",
        "test_a_kernel_whose_port_is_taken_is_started_again",
        "test_a_kernel_whose_port_is_always_taken_fails_with_the_reason",
    ),
    "workbook/test_shards.py": (
        "test_a_second_run_is_refused",
        "test_shards_one_after_another_and_their_index",
        "test_shards_run_in_parallel_and_other_runs_are_refused",
        "test_resume_continues_after_a_killed_run",
    ),
    "workbook/test_watching.py": (
        "test_a_running_notebook_can_be_opened_and_never_counts_as_finished",
        "test_a_notebook_that_takes_too_long_is_stopped",
        "test_the_memory_limit_counts_all_processes_of_the_notebook",
        "test_a_kernel_that_never_answers_fails",
    ),
    # Wrong rows in tensors of full size; `make test` finds them in small ones.
    "workbook/test_league.py": ("test_a_wrong_row_is_found_in_a_large_tensor",),
    # Every docstring's example; `make test` checks that their arguments exist.
    "workbook/test_reference.py": ("test_the_examples_run",),
    # Full disks.
    "workbook/test_foreign.py": (
        "test_a_full_disk_ends_only_its_point",
        "test_a_slider_of_ones_own_shows_its_figure_on_a_page",
        "test_failures_of_unusual_cells",
    ),
    # Clusters; that Dask starts and returns one point is in `make test`.
    "workbook/test_cluster.py": (
        "test_a_late_worker_without_a_gpu_gets_no_point",
        "test_a_point_waits_while_another_worker_still_runs_it",
        "test_a_killed_scheduler_loses_no_finished_point",
        "test_a_point_of_a_killed_worker_runs_on_another_worker",
        "test_only_points_that_died_are_retried",
        "test_an_ended_runner_ends_its_points_on_the_workers",
    ),
    # Notebooks of the second edition, graded; `make test` checks that their names are found.
    "test_aliases.py": (
        "test_old_submissions_are_marked_under_the_new_names",
        "test_reports_on_old_submissions_use_the_new_names",
        "test_nothing_in_an_old_submission_looks_like_reaching_or_raises",
    ),
    # A class graded again; `make test` grades it once, and reads and merges the marks of each source.
    "workbook/test_grade_overrides.py": ("test_a_teachers_mark_wins_and_survives_every_regrade",),
    # Attacks on the grader and on its answers, hostile notebooks, kills of a grading run.
    "workbook/test_grade.py": (
        "test_a_class_that_is_graded_twice_gets_the_same_marks",
        "test_endless_loops_are_stopped",
        "test_a_cell_that_heeds_no_interrupt_is_killed_and_left_out",
        "test_an_answer_that_comes_in_drops_does_not_come_for_ever",
        "test_exits",
        "test_memory_is_limited",
        "test_output_neither_counts_nor_fills_anything",
        "test_nothing_that_a_notebook_started_survives",
        "test_without_the_graders_pipe_or_the_process_above",
        "test_a_forger_passes_nothing",
        "test_what_a_forger_sends_is_looked_at",
        "test_ctrl_c_leaves_reports_and_no_process",
        "test_an_examiner_that_ends_spoils_its_notebook_only",
        "test_a_notebook_has_its_time_in_all",
    ),
    "workbook/test_grade_attacks.py": ALL,
    "workbook/test_grade_answers.py": ALL,
    "workbook/test_grade_kept.py": (
        "test_no_text_of_a_learner_ends_the_run",
        "test_a_learners_own_interrupt_is_no_timeout",
        "test_an_object_may_be_given_to_the_check_in_any_way",
        "test_a_check_that_does_not_say_its_exercise_is_not_marked_wrong",
        "test_what_is_too_large_or_a_link_is_refused_in_a_sentence",
        "test_what_is_there_is_kept_and_the_rest_is_graded",
        "test_links_in_folders_are_rows_that_say_so",
        "test_a_run_that_is_killed_loses_the_notebook_in_work_only",
        "test_a_run_that_is_killed_at_ten_moments_is_whole_in_the_end",
        "test_huge_outputs_cost_their_notebook_nothing",
        "test_where_gpus_are_each_notebook_has_one_to_itself",
        "test_a_mark_that_is_missing_is_said",
    ),
}

# What repeats something that CI has seen once, or looks at every page. Most kernels of the corpus and of
# workbook/test_verify_evasions.py are marked where they are.
THOROUGH: dict[str, tuple[str, ...]] = {
    # Starters are derived from the solutions.
    "test_labs.py": ("test_an_untouched_starter_passes_nothing",),
    # The small book's pages are looked at in `make test`.
    "workbook/test_book.py": ("test_the_whole_book_is_accessible",),
    "workbook/test_kernel_client.py": ("test_no_message_is_lost_under_load",),
    # Nineteen more seeds for every wrong kernel.
    "exercises/test_wrong_kernels.py": (
        "test_wrong_is_rejected_for_further_seeds",
        "test_right_is_accepted_for_further_seeds",
    ),
    # All lessons run once more, for the minutes that their titles state, and from the second set of records.
    "lessons/test_lessons.py": ("test_the_stated_minutes_are_those_of_a_run",),
    "test_notebooks.py": tuple(
        f"test_a_lesson_prints_the_same_from_the_other_records[{lesson}-h100]"
        for lesson in (
            "01_profiling",
            "02_load_inline",
            "04_ptx",
            "05_ncu",
            "07_timers",
            "08_builds",
            "09_wide_rows",
            "10_another_gpu",
            "11_matmul",
            "12_attention",
            "13_verify",
        )
    ),
}

# What needs packages of other versions, which pip downloads.
COMPAT: dict[str, tuple[str, ...]] = {
    "cuda/test_cuda12.py": ALL,
    "test_project.py": ("test_in_colab_pip_replaces_nothing", "test_changes_to_colab_are_detected"),
}

# A test gets the first of these markers that it has a claim to.
TABLES = {"compat": COMPAT, "thorough": THOROUGH, "slow": SLOW}


def listed(table: dict[str, tuple[str, ...]], file: str, names: set[str]) -> bool:
    """Whether a table lists a test: by its file below `tests/` and its name with or without parameters."""
    entries = table.get(file, ())
    return entries == ALL or not names.isdisjoint(entries)
