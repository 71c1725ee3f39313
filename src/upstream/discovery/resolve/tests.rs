//! The server of a resource, for each state of the deciding facts, after changes in any order.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::upstream::discovery::api_services::ApiService;
use crate::upstream::discovery::informer::InformerState;

/// How a resource is described: `C` custom, `B` built in, `-` not to be cached.
fn describe(resources: &Resources, gvr: (&str, &str, &str)) -> char {
    match resources.get(&GroupVersionResource::new(gvr.0, gvr.1, gvr.2)) {
        Some(resource) if resource.aggregated => '-',
        Some(resource) if resource.shape == Shape::Custom => 'C',
        Some(_) => 'B',
        None => ' ',
    }
}

const WIDGETS: (&str, &str, &str) = ("example.com", "v1", "widgets");
const INGRESSES: (&str, &str, &str) = ("networking.k8s.io", "v1", "ingresses");

fn served() -> ServedResources {
    let listed = |resource: &str, kind: &str| DiscoveredResource {
        resource: resource.into(),
        kind: kind.into(),
        namespaced: true,
        list_watchable: true,
    };
    ServedResources::from([
        (("".into(), "v1".into()), vec![listed("pods", "Pod")]),
        (("networking.k8s.io".into(), "v1".into()), vec![listed("ingresses", "Ingress")]),
        (("example.com".into(), "v1".into()), vec![listed("widgets", "Widget")]),
    ])
}

type Definitions = BTreeMap<String, CustomResource>;

/// Returns definitions of both resources.
fn definitions(generation: i64, version: &str, served: bool) -> Definitions {
    let define = |group: &str, plural: &str, kind: &str| {
        let name = format!("{plural}.{group}");
        let crd = serde_json::json!({
            "metadata": {"name": name, "uid": "u", "generation": generation},
            "spec": {"group": group, "scope": "Namespaced", "names": {},
                "versions": [{"name": version, "served": served, "selectableFields": [{"jsonPath": ".spec.color"}]}]},
            "status": {"acceptedNames": {"plural": plural, "kind": kind, "listKind": format!("{kind}Collection")}},
        });
        (name, serde_json::from_value(crd).unwrap())
    };
    [
        define("example.com", "widgets", "Widget"),
        define("networking.k8s.io", "ingresses", "Ingress"),
    ]
    .into()
}

/// Returns the APIServices of both versions.
fn services(label: &str, is_aggregated: bool) -> InformerState<ApiService> {
    let service = |name: &str| {
        let mut value = serde_json::json!({"metadata": {"name": name}, "spec": {"service": null}});
        if !label.is_empty() {
            value["metadata"]["labels"] =
                serde_json::json!({"kube-aggregator.kubernetes.io/automanaged": label});
        }
        if is_aggregated {
            value["spec"]["service"] = serde_json::json!({"name": "s", "namespace": "n"});
        }
        (name.to_owned(), serde_json::from_value(value).unwrap())
    };
    InformerState::Synced(["v1.example.com", "v1.networking.k8s.io"].map(service).into())
}

fn none() -> InformerState<ApiService> {
    InformerState::Synced(BTreeMap::new())
}

fn resolve_with(
    definitions: Option<&Definitions>,
    services: &InformerState<ApiService>,
    (has_aggregator, readers): (bool, Readers),
    aggregated: &AggregatedVersions,
) -> Resources {
    let services = ApiServices::new(services, has_aggregator);
    aggregated.note(services.aggregated());
    resolve(&served(), Sources { definitions, services, aggregated, readers })
}

/// The columns are the states of the definition: served, of another version, not served, absent,
/// unknown.
#[test]
fn the_apiservice_decides_before_all_else() {
    let both = [Readers::One, Readers::Many];
    let (one, many) = ([Readers::One], [Readers::Many]);
    let columns = [
        Some(definitions(1, "v1", true)),
        Some(definitions(1, "v2", true)),
        Some(definitions(1, "v1", false)),
        Some(Definitions::new()),
        None,
    ];
    type Row<'a> = (&'a str, InformerState<ApiService>, bool, &'a [Readers], &'a str, &'a str);
    let rows: Vec<Row<'_>> = vec![
        ("there is none", none(), true, &both, "C----", "-BBBB"),
        ("local", services("", false), true, &both, "C----", "-BBBB"),
        ("local, of a definition", services("true", false), true, &both, "C----", "-----"),
        ("local, built in", services("onstart", false), true, &both, "-BBBB", "BBBBB"),
        ("a service", services("", true), true, &both, "-----", "-----"),
        ("a service, by label a definition", services("true", true), true, &both, "-----", "-----"),
        ("a service, by label built in", services("onstart", true), true, &both, "-----", "-----"),
        ("forbidden", InformerState::Forbidden, true, &one, "-----", "-BBBB"),
        ("forbidden", InformerState::Forbidden, true, &many, "-----", "-----"),
        ("forbidden", InformerState::Forbidden, false, &many, "-----", "-----"),
        ("not listed yet", InformerState::Pending, true, &one, "-----", "-BBBB"),
        ("not listed yet", InformerState::Pending, false, &many, "-----", "-----"),
        ("a 404 that cannot be", InformerState::Absent, true, &one, "-----", "-BBBB"),
        ("a 404 that cannot be", InformerState::Absent, true, &many, "-----", "-----"),
        ("no aggregator", InformerState::Absent, false, &both, "C----", "-BBBB"),
    ];
    for (name, state, has_aggregator, readers, custom, built_in) in rows {
        for readers in readers {
            let describe_all = |gvr| {
                let columns = columns.iter().map(|definitions| {
                    let aggregated = AggregatedVersions::default();
                    let how = (has_aggregator, *readers);
                    describe(&resolve_with(definitions.as_ref(), &state, how, &aggregated), gvr)
                });
                columns.collect::<String>()
            };
            assert_eq!(describe_all(WIDGETS), custom, "{name}: custom, {readers:?}");
            assert_eq!(describe_all(INGRESSES), built_in, "{name}: built in, {readers:?}");
        }
    }
}

#[test]
fn a_custom_resource_is_described_by_its_definition() {
    let aggregated = AggregatedVersions::default();
    let resolved = |generation| {
        let definitions = definitions(generation, "v1", true);
        let how = (true, Readers::Many);
        let resources =
            resolve_with(Some(&definitions), &services("true", false), how, &aggregated);
        let (group, version, resource) = WIDGETS;
        ApiResource::clone(&resources[&GroupVersionResource::new(group, version, resource)])
    };
    let widgets = resolved(1);
    assert_eq!((&*widgets.list_kind, widgets.selectable.len()), ("WidgetCollection", 1));
    assert_eq!(widgets.revision, resolved(1).revision);
    assert_ne!(widgets.revision, resolved(2).revision, "a changed definition");
}

/// An API server that starts serves a custom resource a moment after its definition.
#[test]
fn a_custom_resource_stays_while_its_definition_does() {
    let first = definitions(1, "v1", true);
    let local = services("true", false);
    let aggregated = AggregatedVersions::default();
    let before = resolve_with(Some(&first), &local, (true, Readers::Many), &aggregated);
    let kept = |definitions: Option<&Definitions>, services: &InformerState<ApiService>| {
        let services = ApiServices::new(services, true);
        let aggregated = AggregatedVersions::default();
        aggregated.note(services.aggregated());
        let readers = Readers::Many;
        let sources = Sources { definitions, services, aggregated: &aggregated, readers };
        let mut resources = Resources::default();
        keep_defined(&mut resources, &before, sources);
        describe(&resources, WIDGETS)
    };
    assert_eq!(kept(Some(&first), &local), 'C');
    assert_eq!(kept(Some(&definitions(2, "v1", true)), &local), ' ', "the definition changed");
    assert_eq!(kept(Some(&Definitions::new()), &local), ' ', "the definition was deleted");
    assert_eq!(kept(None, &local), ' ');
    assert_eq!(kept(Some(&first), &services("true", true)), ' ', "it is aggregated");
    assert_eq!(kept(Some(&first), &InformerState::Forbidden), ' ');
}

/// Another API server may not have seen yet that the service is gone.
#[tokio::test(start_paused = true)]
async fn a_version_that_was_aggregated_is_not_cached_for_a_minute() {
    let definitions = definitions(1, "v1", true);
    let aggregated = AggregatedVersions::default();
    let now = |services: &InformerState<ApiService>| {
        let how = (true, Readers::One);
        describe(&resolve_with(Some(&definitions), services, how, &aggregated), WIDGETS)
    };
    assert_eq!(now(&services("", false)), 'C');
    assert_eq!(now(&services("", true)), '-', "at once");
    for gone in [services("", false), none()] {
        assert_eq!(now(&services("", true)), '-');
        advance(Duration::from_secs(59)).await;
        assert_eq!(now(&gone), '-');
        advance(Duration::from_secs(2)).await;
        assert_eq!(now(&gone), 'C');
    }
}

/// A change of what decides who serves a resource.
#[derive(Clone, Copy, Debug)]
enum Step {
    Service(bool),
    Labelled(&'static str),
    WithoutServices,
    Forbidden,
    Absent,
    Definition(&'static str, bool),
    WithoutDefinition,
    WithoutDefinitions,
    Seconds(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Service),
        1 => prop_oneof![Just(""), Just("true"), Just("onstart")].prop_map(Step::Labelled),
        1 => Just(Step::WithoutServices),
        1 => Just(Step::Forbidden),
        1 => Just(Step::Absent),
        3 => (prop_oneof![Just("v1"), Just("v2")], any::<bool>())
            .prop_map(|(version, served)| Step::Definition(version, served)),
        1 => Just(Step::WithoutDefinition),
        1 => Just(Step::WithoutDefinitions),
        3 => (1_u64..50).prop_map(Step::Seconds),
    ]
}

proptest! {
    #[test]
    fn whatever_changes_an_aggregated_version_is_never_cached(
        steps in prop::collection::vec(step(), 1..40),
        is_gateway in any::<bool>(),
    ) {
        let readers = if is_gateway { Readers::Many } else { Readers::One };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(&steps, readers));
    }
}

async fn check(steps: &[Step], readers: Readers) {
    let aggregated = AggregatedVersions::default();
    let (mut state, mut label, mut is_aggregated) = (none(), "", false);
    let mut defined = Some(Definitions::new());
    let mut before = Resources::default();
    let mut last_aggregated: Option<tokio::time::Instant> = None;
    for step in steps {
        match *step {
            Step::Service(set) => is_aggregated = set,
            Step::Labelled(set) => label = set,
            Step::Definition(version, served) => defined = Some(definitions(1, version, served)),
            Step::WithoutDefinition => defined = Some(Definitions::new()),
            Step::WithoutDefinitions => defined = None,
            Step::Seconds(seconds) => advance(Duration::from_secs(seconds)).await,
            Step::WithoutServices | Step::Forbidden | Step::Absent => {}
        }
        state = match step {
            Step::Service(_) | Step::Labelled(_) => services(label, is_aggregated),
            Step::WithoutServices => none(),
            Step::Forbidden => InformerState::Forbidden,
            Step::Absent => InformerState::Absent,
            _ => state,
        };
        let services = ApiServices::new(&state, true);
        aggregated.note(services.aggregated());
        let (definitions, aggregated) = (defined.as_ref(), &aggregated);
        let sources = Sources { definitions, services, aggregated, readers };
        let mut resources = resolve(&served(), sources);
        keep_defined(&mut resources, &before, sources);

        let is_now = services.aggregated().count() > 0;
        if is_now {
            last_aggregated = Some(tokio::time::Instant::now());
        }
        let is_recent = last_aggregated.is_some_and(|at| at.elapsed() < Duration::from_secs(60));
        let is_listed = matches!(services, ApiServices::Listed(_));
        for gvr in [WIDGETS, INGRESSES] {
            let described = describe(&resources, gvr);
            let is_cached = described != '-';
            assert!(!(is_cached && is_listed && is_recent), "{gvr:?} after {step:?}");
            assert!(!(is_cached && !is_listed && readers == Readers::Many), "{gvr:?} {step:?}");
            assert!(described != 'C' || is_listed, "{gvr:?} after {step:?}");
        }
        before = resources;
    }
}
