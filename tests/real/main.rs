//! Weir in front of a real kube-apiserver and etcd, with real clients.
//!
//! The binaries are those of envtest's convention: in `$KUBEBUILDER_ASSETS`, or in
//! `/usr/local/kubebuilder/bin`. Where they are missing each test says so and is counted as
//! ignored.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "this is a test"
)]
#![expect(clippy::disallowed_methods, reason = "waits for processes, whose clock is the system's")]

mod bad_input;
mod churn;
mod control_plane;
mod definitions;
mod differential;
mod fan_out;
#[path = "../support/h2c.rs"]
mod h2c;
mod kubectl;
mod matrix;
#[path = "../matrix/suite.rs"]
mod matrix_suite;
mod namespaced;
mod relist;
mod resources;
mod rollout;
mod starts;
#[path = "../differential/suite.rs"]
mod suite;
#[path = "../support/weir.rs"]
mod support;
mod truth;
#[path = "../support/wait.rs"]
mod wait;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> std::process::ExitCode {
    let missing = control_plane::assets().is_none();
    if missing {
        eprintln!(
            "no kube-apiserver and etcd in $KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin: every test here is ignored"
        );
    }
    let no_kubectl = missing || control_plane::kubectl().is_none();
    // Where it is still an alpha feature, other events may precede the bookmark that ends an
    // initial state, so its content cannot be checked.
    let no_watch_list = missing || !control_plane::has_watch_list();
    let trial = |name: &str, ignored: bool, test: fn()| {
        let run = move || -> Result<(), Failed> {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    let mut arguments = Arguments::from_args();
    // Each test has a control plane of its own; two at once are enough for a small machine.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let tests = vec![
        trial("kubectl_reads_and_writes_through_weir", no_kubectl, kubectl::reads_and_writes),
        trial("kubectl_watches_and_waits_through_weir", no_kubectl, kubectl::watches_and_waits),
        trial("informers_stay_equal_while_objects_churn", missing, churn::while_objects_churn),
        trial("informers_survive_a_killed_upstream", missing, churn::killed_upstream),
        trial("informers_survive_a_compaction", missing, churn::compaction),
        trial("informers_survive_a_restored_etcd", missing, churn::restored_etcd),
        trial("a_thousand_watches_cost_one", missing, fan_out::warm),
        trial("a_thousand_clients_of_a_cold_weir_cost_one", missing, fan_out::cold),
        trial("rights_in_one_namespace_are_enough", missing, namespaced::one_namespace),
        trial(
            "watches_and_lists_are_true_under_fire",
            no_watch_list,
            truth::watches_and_lists_under_fire,
        ),
        trial("the_corpus_is_answered_as_by_the_upstream", missing, differential::answers),
        trial("the_corpus_through_two_weirs", missing, differential::answers_through_two),
        trial("watches_in_every_form_are_true_under_fire", no_watch_list, differential::watches),
        trial("pages_may_come_from_any_side", missing, differential::pages),
        trial("definitions_change_under_watches", missing, definitions::change),
        trial(
            "a_controller_manager_rolls_out_through_weir",
            no_kubectl || rollout::manager().is_none(),
            rollout::through_weir,
        ),
        trial("consistent_starts_come_from_the_cache", missing, starts::consistent),
        trial("a_relist_brings_no_herd", missing, relist::no_herd),
        trial("every_resource_in_every_form", missing, resources::every_form),
        trial("metadata_is_that_of_the_object", missing, resources::metadata),
        trial("an_api_that_is_nowhere_harms_nothing", missing, definitions::nowhere),
        trial("bad_input_gets_the_upstreams_answers", missing, bad_input::answers),
        trial("everybody_gets_what_the_upstream_gives", missing, matrix::everybody),
        trial("everybody_gets_it_by_impersonation_too", missing, matrix::by_impersonation),
        trial("everybody_gets_it_by_roles_kept_here", missing, matrix::by_roles),
        trial("no_spelling_of_a_path_reveals_a_secret", missing, matrix::paths),
        trial("who_loses_a_right_loses_it_here", missing, matrix::revoked),
        trial("a_right_by_roles_kept_here_ends_with_the_event", missing, matrix::revoked_by_roles),
        trial("nothing_secret_is_told", missing, matrix::secrets),
    ];
    libtest_mimic::run(&arguments, tests).exit_code()
}
