//! Weir in front of a real kube-apiserver and etcd, with real clients.
//!
//! The binaries are those of envtest's convention: in `$KUBEBUILDER_ASSETS`, or in
//! `/usr/local/kubebuilder/bin`. Where they are missing each test says so and is counted as
//! ignored. Several directories are several versions, see `versions.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "this is a test"
)]
#![expect(clippy::disallowed_methods, reason = "waits for processes, whose clock is the system's")]

mod aggregated;
mod bad_input;
mod churn;
mod classification;
mod control_plane;
mod cuts;
mod definitions;
mod differential;
mod fan_out;
mod figures;
mod filtered;
mod fire;
mod frozen;
#[path = "../support/h2_tls.rs"]
mod h2_tls;
#[path = "../support/h2c.rs"]
mod h2c;
mod kubectl;
mod manifests;
mod matrix;
#[path = "../matrix/suite.rs"]
mod matrix_suite;
mod namespaced;
mod next;
mod nodes;
mod relist;
mod resources;
mod reviews;
mod rollout;
mod shadow;
mod shards;
mod shedding;
mod starts;
#[path = "../differential/suite.rs"]
mod suite;
#[path = "../support/weir.rs"]
mod support;
mod unreadable;
mod versions;

#[path = "../support/wait.rs"]
mod wait;
mod webhook;
mod wire;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> std::process::ExitCode {
    let dirs = control_plane::asset_dirs();
    if dirs.len() > 1 {
        return versions::test_each(&dirs);
    }
    let mut arguments = Arguments::from_args();
    // Each test has a control plane of its own; two at once are enough for a small machine.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    next::exit_code(&libtest_mimic::run(&arguments, tests()))
}

fn tests() -> Vec<Trial> {
    let missing = control_plane::assets().is_none().then_some(
        "no kube-apiserver and etcd in $KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin",
    );
    let no_kubectl = missing.or(control_plane::kubectl().is_none().then_some("no kubectl"));
    let no_manager = no_kubectl.or(rollout::manager().is_none().then_some("no controller manager"));
    let is_before = |first: u32| control_plane::minor().is_some_and(|minor| minor < first);
    let no_progress = missing.or(is_before(31).then_some(
        "an API server of this version learns of writes elsewhere by a bookmark a minute",
    ));
    let no_watch_list = missing.or(is_before(32).then_some(
        "watch-list is alpha in this version: other events may precede the bookmark that ends an \
         initial state, so its content cannot be checked",
    ));
    let no_upgrade = missing
        .or(control_plane::upgraded_assets().is_none().then_some("no next version to upgrade to"));
    let older = missing.or(next::is_older().then_some("the list is of a newer version"));
    let mut trials = vec![
        trial("every_gate_and_parameter_is_known", older, next::gates_and_parameters),
        trial("kubectl_reads_and_writes_through_weir", no_kubectl, kubectl::reads_and_writes),
        trial("kubectl_watches_and_waits_through_weir", no_kubectl, kubectl::watches_and_waits),
        trial("informers_stay_equal_while_objects_churn", missing, churn::while_objects_churn),
        trial("informers_survive_a_killed_upstream", missing, churn::killed_upstream),
        trial("informers_survive_a_compaction", missing, churn::compaction),
        trial("informers_survive_a_restored_etcd", missing, churn::restored_etcd),
        trial("a_thousand_watches_cost_one_upstream_watch", missing, fan_out::warm),
        trial("a_thousand_cold_clients_cost_one_upstream_watch", missing, fan_out::cold),
        trial("classes_equal_the_upstreams", missing, classification::equals_the_upstreams),
        trial("refusals_name_the_objects_of_the_api_server", missing, shedding::refusals),
        trial("permissions_in_one_namespace_are_enough", missing, namespaced::one_namespace),
        trial(
            "watches_equal_the_upstreams_while_connections_break",
            no_watch_list,
            cuts::watches_and_lists,
        ),
        trial("requests_leave_frozen_connections", missing, frozen::http2_connections),
        trial("requests_leave_frozen_http1_connections", missing, frozen::http1_connections),
        trial("consistent_lists_show_every_write", missing, starts::own_writes),
        trial("watches_follow_changes_of_definitions", missing, definitions::change),
        trial("names_and_fields_that_mislead_a_parser", missing, definitions::confusable),
        trial("a_controller_manager_rolls_out_through_weir", no_manager, rollout::through_weir),
        trial("consistent_starts_come_from_the_cache", no_progress, starts::consistent),
        trial("a_relist_ends_no_watch_and_costs_no_client_list", missing, relist::no_herd),
        trial(
            "an_unavailable_aggregated_api_affects_no_other_resource",
            missing,
            definitions::nowhere,
        ),
        trial(
            "no_tenants_objects_change_what_another_reads",
            no_progress,
            unreadable::another_tenants_objects,
        ),
    ];
    trials.extend([
        trial(
            "the_truth_holds_through_an_upgrade_behind_a_balancer",
            no_upgrade,
            fire::upgrade::behind_a_balancer,
        ),
        trial(
            "the_truth_holds_through_an_upgrade_with_a_list",
            no_upgrade,
            fire::upgrade::in_a_list,
        ),
    ]);
    trials.extend(trials_of_answers(missing, no_progress, no_watch_list));
    // Without AuthorizeNodeWithSelectors.
    let no_selectors = no_kubectl
        .or(is_before(32).then_some("a node may read the pods of all nodes in this version"));
    trials.push(trial(
        "kubelets_get_what_the_authorizer_node_allows",
        no_selectors,
        nodes::kubelets,
    ));
    trials.extend(trials_of_users(missing));
    if missing.is_none() {
        trials.extend(figures::trials());
    }
    trials
}

/// Returns the tests that compare Weir's answers with the API server's.
fn trials_of_answers(
    missing: Option<&str>,
    no_progress: Option<&str>,
    no_watch_list: Option<&str>,
) -> Vec<Trial> {
    let has_shards = control_plane::has_shard_selectors();
    let no_shards = missing.or((!has_shards).then_some("this version has no shard selectors"));
    vec![
        trial("responses_equal_the_upstreams", no_progress, differential::answers),
        trial(
            "responses_through_two_weirs_equal_the_upstreams",
            no_progress,
            differential::answers_through_two,
        ),
        trial(
            "every_watch_equals_the_upstreams_during_churn",
            no_watch_list,
            differential::watches,
        ),
        trial(
            "a_paged_list_may_alternate_between_weir_and_the_upstream",
            missing,
            differential::pages,
        ),
        trial("consistent_lists_equal_the_upstreams", no_progress, differential::consistent),
        trial("reads_of_shards_equal_the_upstreams", no_shards, shards::answers),
        trial("reads_of_shards_equal_the_upstreams_without_the_gate", no_progress, shards::without),
        trial("watches_of_64_shards_cost_one_upstream_watch", no_shards, shards::watches),
        trial("every_resource_in_every_form_equals_the_upstreams", missing, resources::every_form),
        trial("metadata_only_views_equal_the_objects_metadata", missing, resources::metadata),
        trial("invalid_parameters_get_the_upstreams_answers", missing, bad_input::answers),
        trial("raw_requests_mean_what_the_upstream_reads", missing, wire::requests),
        trial("raw_websockets_mean_what_the_upstream_reads", missing, wire::sockets),
    ]
}

/// Returns the tests with many users.
fn trials_of_users(missing: Option<&str>) -> Vec<Trial> {
    vec![
        trial(
            "nobody_sees_what_an_aggregated_api_server_shows_another_user",
            missing,
            aggregated::takeovers,
        ),
        trial("every_user_gets_the_upstreams_answers", missing, matrix::everybody),
        trial(
            "every_user_gets_the_upstreams_answers_by_impersonation",
            missing,
            matrix::by_impersonation,
        ),
        trial("every_user_gets_the_upstreams_answers_by_local_rbac", missing, matrix::by_roles),
        trial("access_reviews_are_answered_as_by_the_upstream", missing, reviews::both_ways),
        trial(
            "users_see_the_union_of_the_namespaces_that_roles_allow",
            missing.or(control_plane::kubectl().is_none().then_some("no kubectl")),
            filtered::unions,
        ),
        trial("a_webhook_denies_what_roles_allow", missing, webhook::denies),
        trial("a_webhook_allows_what_roles_allow", missing, webhook::allows),
        trial("no_spelling_of_a_path_reveals_a_secret", missing, matrix::paths),
        trial("a_revoked_permission_or_credential_is_refused_in_time", missing, matrix::revoked),
        trial(
            "local_rbac_refuses_a_revoked_permission_with_the_event",
            missing,
            matrix::revoked_by_roles,
        ),
        trial("logs_and_metrics_contain_no_secret", missing, matrix::secrets),
        trial("a_refusal_equals_the_upstreams_in_every_form", missing, matrix::refusals),
    ]
}

/// Returns a test. It is ignored where something is missing, and says what.
fn trial(name: &str, missing: Option<&str>, test: fn()) -> Trial {
    if let Some(missing) = missing {
        eprintln!("{name} is ignored: {missing}");
    }
    let run = move || -> Result<(), Failed> {
        test();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(missing.is_some())
}
