//! Tests of the rules: habits that each one finds, and habits that it must not find.

mod good;
mod time;
mod world;

use proptest::prelude::*;

use super::*;
use crate::costs::Text;
use crate::doctor::tests::world::{
    GO, LIST, PYTHON, Requests, WATCH, World, rules_found_for, with,
};
use crate::habit::{AskedForm, Habit, Start};

#[test]
fn each_rule_finds_its_habit_and_not_the_good_version() {
    let unset = with(|habit| habit.start = Start::Unset);
    let again = with(|habit| habit.is_repeated = true);
    let informer = [Requests { count: 1, ..LIST }, WATCH];
    assert_eq!(rules_found_for(&informer), []);
    assert_eq!(rules_found_for(&[LIST]), [Rule::PollList]);
    assert_eq!(rules_found_for(&[Requests { count: 5, ..LIST }]), [], "too few");

    let consistent = Requests { habit: unset, is_forwarded: true, ..LIST };
    assert_eq!(rules_found_for(&[consistent, WATCH]), [Rule::UnsetList]);
    assert_eq!(
        rules_found_for(&[Requests { is_forwarded: false, ..consistent }, WATCH]),
        [],
        "cached"
    );
    let kubectl = Requests { agent: "kubectl/v1.36", ..consistent };
    assert_eq!(rules_found_for(&[kubectl]), [], "a person");

    let large = Requests { bytes: 2e6, count: 5, ..consistent };
    assert_eq!(rules_found_for(&[large, WATCH]), [Rule::UnpagedList]);
    let paged = Requests { habit: Habit { is_limited: true, ..unset }, ..large };
    assert_eq!(rules_found_for(&[paged, WATCH]), []);
    assert_eq!(rules_found_for(&[Requests { bytes: 1e5, ..large }, WATCH]), [], "small");
    let huge = Requests { count: 1, sign: |signs| signs.huge_lists = 1.0, ..consistent };
    assert_eq!(rules_found_for(&[huge, WATCH]), [Rule::UnpagedList], "one is enough");

    assert_eq!(rules_found_for(&[Requests { habit: again, ..LIST }, WATCH]), [Rule::RelistLoop]);
    let fleet = Requests { count: 60, ..LIST };
    assert_eq!(
        rules_found_for(&[fleet, Requests { count: 60, ..WATCH }]),
        [],
        "many informers begin"
    );

    let short = Requests { count: 20, sign: |signs| signs.short_watches = 1.0, ..WATCH };
    assert_eq!(rules_found_for(&[short]), [Rule::WatchChurn]);
    assert_eq!(
        rules_found_for(&[Requests { sign: |signs| signs.short_watches = 0.3, ..short }]),
        []
    );

    let plain = with(|habit| habit.takes_gzip = false);
    let plain = Requests { habit: plain, bytes: 2e5, count: 5, ..LIST };
    assert_eq!(rules_found_for(&[plain, WATCH]), [Rule::NoGzip]);
    assert_eq!(rules_found_for(&[Requests { bytes: 5e4, ..plain }, WATCH]), [], "small");

    let json = Requests { agent: GO, bytes: 2e7, ..WATCH };
    assert_eq!(rules_found_for(&[json]), [Rule::Json]);
    assert_eq!(
        rules_found_for(&[Requests { agent: PYTHON, ..json }]),
        [],
        "it cannot read protobuf"
    );
    let protobuf = with(|habit| habit.form = AskedForm::Protobuf);
    assert_eq!(rules_found_for(&[Requests { habit: protobuf, ..json }]), []);
    let only = with(|habit| habit.form = AskedForm::OnlyJson);
    assert_eq!(rules_found_for(&[Requests { habit: only, ..json }]), [], "a dynamic client");
}

#[test]
fn a_finding_costs_what_its_requests_cost() {
    let mut world = World::new();
    // Twenty of a thousand requests come too early.
    let base = Requests { is_forwarded: true, bytes: 0.0, resource: "leases", ..WATCH };
    let early =
        Requests { verb: "update", count: 20, sign: |signs| signs.early_retries = 1.0, ..base };
    let deprecated = Requests { count: 980, sign: |signs| signs.deprecated = 0.5, ..base };
    let nameless = Requests { agent: "", count: 900, ..base };
    world.run(&[early, deprecated, nameless]);
    let findings = world.doctor.examine(world.now, &world.costs);
    for (rule, requests) in [(Rule::Retries, 20.0), (Rule::Deprecated, 490.0), (Rule::NoAgent, 0.0)]
    {
        let finding = findings.iter().find(|finding| finding.rule == rule).unwrap();
        let expected = requests * SECONDS_PER_REQUEST / 600.0;
        let cores = finding.upstream_cores;
        assert!((cores - expected).abs() <= 0.05 * expected, "{rule:?}: {cores}, {expected}");
    }
}

#[test]
fn gets_of_one_object_are_polling_unless_there_is_a_watch() {
    let again = with(|habit| habit.is_repeated = true);
    let loop_of_gets = Requests { verb: "get", habit: again, count: 400, ..LIST };
    assert_eq!(rules_found_for(&[loop_of_gets]), [Rule::PollGet]);
    assert_eq!(rules_found_for(&[loop_of_gets, WATCH]), [], "it watches too");
    assert_eq!(
        rules_found_for(&[Requests { habit: LIST.habit, ..loop_of_gets }]),
        [],
        "of many objects"
    );
    assert_eq!(rules_found_for(&[Requests { count: 60, ..loop_of_gets }]), [], "a moment");
    assert_eq!(
        rules_found_for(&[Requests { agent: "kubectl/v1.36", ..loop_of_gets }]),
        [],
        "a person"
    );
}

#[test]
fn watches_that_do_not_help_are_found() {
    let from = with(|habit| habit.start = Start::Version);
    let dead =
        Requests { habit: from, count: 20, sign: |signs| signs.expired_watches = 1.0, ..WATCH };
    assert_eq!(rules_found_for(&[dead]), [Rule::DeadWatch]);
    // A client that lists after each 410, over new connections.
    assert_eq!(rules_found_for(&[dead, Requests { count: 20, ..LIST }]), []);
    let streamed = Requests { habit: with(|habit| habit.start = Start::Unset), count: 20, ..WATCH };
    assert_eq!(rules_found_for(&[dead, streamed]), [], "it begins with the state each time");
    assert_eq!(rules_found_for(&[Requests { count: 4, ..dead }]), [], "few");
    // Each of a fleet's informers lists once after its 410.
    let unset = with(|habit| habit.start = Start::Unset);
    let lists = Requests { habit: unset, count: 12, is_forwarded: true, ..LIST };
    assert_eq!(rules_found_for(&[Requests { count: 12, ..dead }, lists]), []);

    let twin = Requests { sign: |signs| signs.twin_watches = 1.0, ..WATCH };
    assert_eq!(rules_found_for(&[twin]), [Rule::TwinWatches]);
    assert_eq!(rules_found_for(&[Requests { count: 40, ..WATCH }]), [], "of many processes");
    assert_eq!(rules_found_for(&[Requests { agent: "kubectl/v1.36", ..twin }]), [], "a person");
}

#[test]
fn a_program_on_each_node_that_reads_all_pods_is_found() {
    let mut world = World::new();
    world.run(&[Requests { count: 20, ..WATCH }]);
    let text = |text: &str| Text::new(&world.hasher, text);
    let (nobody, agent, other) = (text(""), text(PYTHON), text("other/1"));
    for address in 0..9 {
        world.costs.open_reader(world.now, &nobody, &agent, address);
        world.costs.open_reader(world.now, &nobody, &other, address + 100);
    }
    assert_eq!(world.rules(), [], "nine addresses");
    world.costs.open_reader(world.now, &nobody, &agent, 9);
    assert_eq!(world.rules(), [Rule::NodeAgent]);
    (0..6).for_each(|address| world.costs.close_reader(&nobody, &agent, address));
    assert_eq!(world.rules(), []);
    // A job, and the pods of roll-outs: one address after another.
    for address in 100..200 {
        world.costs.open_reader(world.now, &nobody, &agent, address);
        world.costs.close_reader(&nobody, &agent, address);
    }
    assert_eq!(world.rules(), []);
}

#[test]
fn retries_and_deprecated_apis_are_found_for_each_verb() {
    for verb in ["list", "get", "create"] {
        let early = Requests { verb, count: 20, sign: |signs| signs.early_retries = 1.0, ..LIST };
        assert!(rules_found_for(&[early, WATCH]).contains(&Rule::Retries), "{verb}");
        assert_eq!(rules_found_for(&[Requests { count: 5, ..early }, WATCH]), [], "{verb}: few");
        let old = Requests { verb, count: 5, sign: |signs| signs.deprecated = 1.0, ..LIST };
        assert_eq!(rules_found_for(&[old, WATCH]), [Rule::Deprecated], "{verb}");
        for agent in ["kubectl/v1.36", "kube-controller-manager/v1.36.2 (linux/amd64)"] {
            assert_eq!(rules_found_for(&[Requests { agent, ..old }, WATCH]), [], "{verb}: {agent}");
        }
    }
    let mut world = World::new();
    world.costs.note_warning(&Text::new(&world.hasher, "pods"), "v0 Pod is deprecated in v1.2+");
    world.run(&[Requests { count: 5, sign: |signs| signs.deprecated = 1.0, ..LIST }, WATCH]);
    let evidence = &world.doctor.examine(world.now, &world.costs)[0].evidence;
    assert_eq!(evidence, "5 responses with the warning: v0 Pod is deprecated in v1.2+");
}

#[test]
fn whole_objects_are_a_hint_where_they_are_read_often_or_beside_metadata() {
    let again = with(|habit| habit.is_repeated = true);
    let large = Requests { bytes: 7e6, count: 4, ..LIST };
    assert_eq!(rules_found_for(&[large]), [Rule::WholeObjects], "no watch");
    assert_eq!(rules_found_for(&[Requests { habit: again, ..large }, WATCH]), [Rule::WholeObjects]);
    assert_eq!(rules_found_for(&[large, WATCH]), [], "the first lists of informers");
    assert_eq!(rules_found_for(&[Requests { bytes: 5e6, ..large }]), [], "less than the bound");
    let metadata = with(|habit| habit.form = AskedForm::Metadata);
    let of_metadata = Requests { habit: metadata, ..WATCH };
    let one = Requests { count: 1, ..large };
    assert_eq!(rules_found_for(&[one, WATCH, of_metadata]), [Rule::WholeObjects], "both in memory");
    assert_eq!(rules_found_for(&[Requests { habit: metadata, ..large }, of_metadata]), []);
}

#[test]
fn a_client_without_a_name_is_found_once_for_all_resources() {
    for agent in [
        "",
        "OpenAPI-Generator/37.0.2/python",
        "Go-http-client/2.0",
        "fabric8-kubernetes-client/7.3.1",
        "manager/v0.0.0 (linux/amd64) kubernetes/$Format",
    ] {
        let nameless = Requests { agent, count: 9, ..WATCH };
        let nodes = Requests { resource: "nodes", ..nameless };
        assert_eq!(rules_found_for(&[nameless, nodes]), [Rule::NoAgent], "{agent:?}");
        assert_eq!(rules_found_for(&[nameless]), [], "few requests");
    }
    assert_eq!(rules_found_for(&[Requests { count: 40, ..WATCH }]), []);
    let mut world = World::new();
    world.run(&[Requests { agent: "", count: 40, ..WATCH }]);
    let findings = world.doctor.examine(world.now, &world.costs);
    assert_eq!((&*findings[0].resource, findings[0].weight), ("(all)", Weight::Info));
}

#[test]
fn custom_resources_have_no_protobuf() {
    let json = Requests { agent: GO, bytes: 2e7, ..WATCH };
    assert_eq!(rules_found_for(&[Requests { resource: "deployments.apps", ..json }]), [Rule::Json]);
    for resource in ["widgets.example.com", "gateways.gateway.networking.k8s.io"] {
        assert_eq!(rules_found_for(&[Requests { resource, ..json }]), [], "{resource}");
    }
}

#[test]
fn a_finding_says_what_was_seen_and_what_it_costs() {
    let mut world = World::new();
    let script = Requests {
        habit: with(|habit| (habit.start, habit.takes_gzip) = (Start::Unset, false)),
        is_forwarded: true,
        count: 600,
        bytes: 2e6,
        ..LIST
    };
    world.run(&[script]);
    let findings = world.doctor.examine(world.now, &world.costs);
    let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
    let expected = [Rule::PollList, Rule::UnsetList, Rule::UnpagedList, Rule::NoGzip];
    assert_eq!(rules, [&expected[..], &[Rule::WholeObjects]].concat());
    let poll = &findings[0];
    assert_eq!(poll.evidence, "a list 1.0 times a second, and no watch");
    assert_eq!((&*poll.agent, &*poll.resource), (PYTHON, "pods"));
    // 2 MB a second, at 12 ns a byte and 0.25 ms a request.
    assert!((poll.upstream_cores - 0.024_25).abs() < 1e-3, "{poll:?}");
    assert!((poll.bytes_per_second - 2e6).abs() < 5e4, "{poll:?}");
    assert_eq!(poll.weight, Weight::Warning);
    for rule in Rule::ALL {
        for library in Library::ALL {
            assert!(rule.fix(library).ends_with('.'), "{rule:?}: {library:?}");
        }
    }
    assert_eq!(Library::guess(PYTHON), [Library::Python]);
    assert_eq!(Library::guess(GO)[0], Library::ClientGo);
}

proptest! {
    #[test]
    fn any_sums_give_finite_costs(
        requests in proptest::collection::vec(
            (0_u32..40, 0.0..1e8_f64, any::<[bool; 6]>(), 0_usize..4),
            0..6,
        ),
    ) {
        let requests: Vec<_> = requests.into_iter().map(|(count, bytes, flags, start)| {
            let starts = [Start::Unset, Start::Any, Start::Version, Start::Continue];
            let [is_limited, takes_gzip, is_repeated, is_watch, is_forwarded, is_go] = flags;
            let form = AskedForm::Json;
            let start = starts[start];
            Requests {
                agent: if is_go { GO } else { PYTHON },
                verb: if is_watch { "watch" } else { "list" },
                habit: Habit { start, is_limited, form, takes_gzip, is_repeated },
                count,
                bytes,
                is_forwarded,
                resource: "pods",
                sign: if is_watch { |signs| signs.short_watches = 1.0 } else { |_| {} },
            }
        }).collect();
        let mut world = World::new();
        world.run(&requests);
        let findings = world.doctor.examine(world.now, &world.costs);
        prop_assert!(findings.len() <= 2 * Rule::ALL.len());
        for finding in &findings {
            prop_assert!(finding.upstream_cores.is_finite() && finding.upstream_cores >= 0.0);
            prop_assert!(finding.bytes_per_second.is_finite() && !finding.evidence.contains("NaN"));
        }
        // The same again finds the same.
        let again = world.doctor.examine(world.now, &world.costs);
        prop_assert!(again.len() >= findings.len());
    }
}
