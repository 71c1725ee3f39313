//! Decisions by the index: a table of real cases, and random ones compared with a model that has no
//! index.

mod model;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::auth::rbac::index::{Index, IndexWriter};
use crate::auth::rbac::policy::Policy;
use crate::auth::rbac::resource::RbacResource;
use crate::auth::rbac::rule::Action;
use crate::auth::user::User;

/// The objects of a cluster by resource, namespace and name.
type Objects = BTreeMap<(&'static str, String, String), Value>;

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    User::new(name.to_owned(), String::new(), groups, BTreeMap::new())
}

fn resource(plural: &str) -> RbacResource {
    RbacResource::ALL.into_iter().find(|resource| resource.as_str() == plural).unwrap()
}

/// Returns a writer to which all objects were added once.
fn build(objects: &Objects) -> IndexWriter {
    let mut writer = IndexWriter::default();
    for ((plural, namespace, name), object) in objects {
        writer.put(resource(plural), namespace, name, object.to_string().as_bytes());
    }
    writer
}

/// A change: an object is added, replaced, or removed.
#[derive(Clone, Debug)]
struct Step {
    key: (&'static str, String, String),
    object: Option<Value>,
}

fn patterns(choices: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => proptest::collection::vec(select(choices), 0..3).prop_map(|patterns| json!(patterns)),
        1 => Just(Value::Null),
    ]
}

fn rules() -> impl Strategy<Value = Value> {
    let rule = (
        patterns(&["get", "list", "*", "watch"]),
        patterns(&["", "apps", "*"]),
        patterns(&["pods", "pods/log", "*/log", "deployments", "*", "deployments/scale", "pods/*"]),
        patterns(&["a", "b", "*"]),
        patterns(&["/healthz", "/healthz/*", "*", "/api*", "/apis**", ""]),
    );
    let rule = rule.prop_map(|(verbs, groups, resources, names, urls)| {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names, "nonResourceURLs": urls, "later": 1})
    });
    proptest::collection::vec(rule, 0..3).prop_map(|rules| json!({ "rules": rules }))
}

fn binding() -> impl Strategy<Value = Value> {
    let subject = (
        select(&["User", "Group", "ServiceAccount", "Robot"][..]),
        select(&["alice", "dev", "system:serviceaccount:one:robot", "robot", ""][..]),
        select(&["", "one", "two"][..]),
    );
    let subject = subject.prop_map(
        |(kind, name, namespace)| json!({"kind": kind, "name": name, "namespace": namespace}),
    );
    let role = (select(&["Role", "ClusterRole", "Other"][..]), select(&["x", "y"][..]));
    (proptest::collection::vec(subject, 0..4), role).prop_map(|(subjects, (kind, name))| {
        json!({"subjects": subjects, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    })
}

fn step() -> impl Strategy<Value = Step> {
    let keyed = |plurals: [&'static str; 2], names: &'static [&'static str]| {
        let namespace = select(&["one", "two"][..]);
        (any::<bool>(), namespace, select(names)).prop_map(move |(cluster, namespace, name)| {
            let (plural, namespace) =
                if cluster { (plurals[0], "") } else { (plurals[1], namespace) };
            (plural, namespace.to_owned(), name.to_owned())
        })
    };
    let unreadable = || Just(json!({"rules": 5, "subjects": 5}));
    let role = prop_oneof![9 => rules(), 1 => unreadable()];
    let binding = prop_oneof![9 => binding(), 1 => unreadable()];
    prop_oneof![
        (keyed(["clusterroles", "roles"], &["x", "y"]), proptest::option::weighted(0.8, role)),
        (
            keyed(["clusterrolebindings", "rolebindings"], &["b", "c", "d"]),
            proptest::option::weighted(0.8, binding)
        ),
    ]
    .prop_map(|(key, object)| Step { key, object })
}

fn any_user() -> impl Strategy<Value = User> {
    const GROUPS: &[&[&str]] = &[&["dev", "dev"], &["system:authenticated"], &[]];
    let names = select(&["alice", "bob", "system:serviceaccount:one:robot", ""][..]);
    let groups = select(GROUPS);
    (names, groups).prop_map(|(name, groups)| user(name, groups))
}

fn action() -> impl Strategy<Value = Action<'static>> {
    let of_resource = (
        select(&["get", "list", ""][..]),
        select(&["", "apps", "batch"][..]),
        select(&["pods", "deployments"][..]),
        select(&["", "log", "scale"][..]),
        select(&["", "one", "two", "three"][..]),
        select(&["", "a", "b"][..]),
    );
    let of_resource =
        of_resource.prop_map(|(verb, group, resource, subresource, namespace, name)| {
            Action::Resource { verb, group, resource, subresource, namespace, name }
        });
    let path = select(&["/healthz", "/healthz/etcd", "/api", "/apis/apps", "/version"][..]);
    let of_none = (select(&["get", "post"][..]), path)
        .prop_map(|(verb, path)| Action::NonResource { verb, path });
    prop_oneof![4 => of_resource, 1 => of_none]
}

fn apply(objects: &mut Objects, writer: &mut IndexWriter, step: Step) {
    let (plural, namespace, name) = &step.key;
    match &step.object {
        Some(object) => {
            writer.put(resource(plural), namespace, name, object.to_string().as_bytes());
        }
        None => writer.remove(resource(plural), namespace, name),
    }
    match step.object {
        Some(object) => drop(objects.insert(step.key, object)),
        None => drop(objects.remove(&step.key)),
    }
}

proptest! {
    #[test]
    fn the_index_decides_like_the_model(
        steps in proptest::collection::vec(step(), 0..24),
        requests in proptest::collection::vec((any_user(), action()), 1..24),
    ) {
        let (mut objects, mut writer) = (Objects::new(), IndexWriter::default());
        for step in steps {
            apply(&mut objects, &mut writer, step);
        }
        let index = writer.index();
        for (user, action) in requests {
            let reasons = model::reasons(&objects, &user, &action);
            let allows = index.allows(&user, &action);
            prop_assert_eq!(allows, !reasons.is_empty(), "{:?} {:?}", user, action);
            let reason = index.find_reason(&user, &action, |_| true);
            prop_assert_eq!(reason.is_some(), allows);
            prop_assert!(reason.iter().all(|reason| reasons.contains(reason)), "{reason:?}");
            for reason in reasons {
                let found = index.find_reason(&user, &action, |other| other == reason);
                prop_assert_eq!(found, Some(reason));
            }
        }
    }

    #[test]
    fn the_namespaces_of_a_user_are_those_in_which_the_model_allows(
        steps in proptest::collection::vec(step(), 0..24),
        requests in proptest::collection::vec((any_user(), action()), 1..24),
    ) {
        let (mut objects, mut writer) = (Objects::new(), IndexWriter::default());
        for step in steps {
            apply(&mut objects, &mut writer, step);
        }
        let index = writer.index();
        for (user, action) in requests {
            let Action::Resource { verb, group, resource, subresource, name, .. } = action else { continue };
            let action_in = |namespace: &'static str| {
                Action::Resource { verb, group, resource, subresource, namespace, name }
            };
            let is_allowed = |namespace: &'static str| {
                !model::reasons(&objects, &user, &action_in(namespace)).is_empty()
            };
            if is_allowed("") {
                continue;
            }
            let expected: BTreeSet<_> = ["one", "two", "three"].into_iter().filter(|name| is_allowed(name)).collect();
            let action_in = |namespace| Action::Resource { verb, group, resource, subresource, namespace, name };
            let found: BTreeSet<_> = index.namespaces_allowing(&user, action_in).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_change_that_is_no_revocation_revokes_nothing(
        steps in proptest::collection::vec(step(), 0..24),
        requests in proptest::collection::vec((any_user(), action()), 1..24),
    ) {
        let (mut objects, mut writer) = (Objects::new(), IndexWriter::default());
        for step in steps {
            let before = writer.index();
            apply(&mut objects, &mut writer, step);
            let (after, revoked) = (writer.index(), writer.take_revoked());
            for (user, action) in &requests {
                let lost = before.allows(user, action) && !after.allows(user, action);
                prop_assert!(revoked || !lost, "{:?} {:?}", user, action);
            }
        }
    }

    #[test]
    fn changes_lead_to_the_same_index_as_building_it_at_once(
        steps in proptest::collection::vec(step(), 0..48),
        listed in proptest::collection::vec(step(), 0..24),
    ) {
        let (mut objects, mut writer) = (Objects::new(), IndexWriter::default());
        for step in steps {
            let (before, expected) = (writer.index(), build(&objects).index());
            apply(&mut objects, &mut writer, step);
            prop_assert_eq!(&writer.index(), &build(&objects).index());
            for resource in RbacResource::ALL {
                let unreadable = build(&objects).unreadable(resource);
                prop_assert_eq!(writer.unreadable(resource), unreadable);
            }
            // The index of a reader does not change.
            prop_assert_eq!(&before, &expected);
        }
        // A new list replaces everything.
        let (mut others, mut other) = (Objects::new(), IndexWriter::default());
        listed.into_iter().for_each(|step| apply(&mut others, &mut other, step));
        for resource in RbacResource::ALL {
            writer.replace(resource, parse(&others, resource));
            prop_assert_eq!(writer.len(resource), other.len(resource));
            prop_assert_eq!(writer.unreadable(resource), other.unreadable(resource));
        }
        prop_assert_eq!(writer.index(), other.index());
        for resource in RbacResource::ALL {
            writer.replace(resource, HashMap::new());
        }
        prop_assert_eq!(writer.index(), Index::default());
    }
}

#[test]
fn a_reason_is_quoted_as_in_go_or_unknown() {
    let mut writer = IndexWriter::default();
    let role = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["*"]}]}).to_string();
    writer.put(resource("clusterroles"), "", "r", role.as_bytes());
    let mut reason = |name: &str| {
        let subjects =
            [json!({"kind": "Robot", "name": name}), json!({"kind": "User", "name": name})];
        let binding =
            json!({"subjects": subjects, "roleRef": {"kind": "ClusterRole", "name": "r"}});
        writer.put(resource("clusterrolebindings"), "", "b", binding.to_string().as_bytes());
        let action = Action::NonResource { verb: "get", path: "/version" };
        let index = writer.index();
        assert!(index.allows(&user(name, &[]), &action));
        index.find_reason(&user(name, &[]), &action, |_| true)
    };
    let allowed = r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "#;
    assert_eq!(reason(r#"a"\b"#), Some(format!(r#"{allowed}"a\"\\b""#)));
    assert_eq!(reason("jürgen"), None);
    assert_eq!(reason("a\tb"), None);
    let masters = user("root", &["system:masters"]);
    let action = Action::NonResource { verb: "post", path: "/version" };
    assert_eq!(writer.index().find_reason(&masters, &action, |_| true), Some(String::new()));
}

/// In JSON, U+FFFD stands for any byte that is not UTF-8: `r\u{fffd}` may be another role here
/// than there.
#[test]
fn what_stands_for_several_texts_grants_nothing() {
    let odd = |text: &str| text.replace('?', "\u{fffd}");
    let allows = |role: &str, rule: Value, subject: &str, bound: &str, name: &str| {
        let mut writer = IndexWriter::default();
        let object = json!({"rules": [rule]}).to_string();
        writer.put(resource("roles"), "ns", &odd(role), object.as_bytes());
        let binding = json!({"subjects": [{"kind": "User", "name": odd(subject)}],
            "roleRef": {"kind": "Role", "name": odd(bound)}});
        writer.put(resource("rolebindings"), "ns", "b", binding.to_string().as_bytes());
        let name = odd(name);
        let (verb, group, resource) = ("get", "", "pods");
        let (subresource, namespace) = ("", "ns");
        let action =
            Action::Resource { verb, group, resource, subresource, namespace, name: &name };
        writer.index().allows(&user(&odd(subject), &[]), &action)
    };
    let rule = |name: &str| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [odd(name)]});
    assert!(allows("r", rule("a"), "u", "r", "a"));
    assert!(!allows("r?", rule("a"), "u", "r?", "a"));
    assert!(!allows("r", rule("a"), "u?", "r", "a"));
    // Without its names, the rule would be for all.
    assert!(!allows("r", rule("a?"), "u", "r", "a?"));
    assert!(!allows("r", rule("a?"), "u", "r", "b"));
}

#[test]
fn adding_a_subject_revokes_nothing_and_removing_one_does() {
    let binding = |subjects: &[&str]| {
        let subjects: Vec<_> =
            subjects.iter().map(|name| json!({"kind": "User", "name": name})).collect();
        json!({"subjects": subjects, "roleRef": {"kind": "ClusterRole", "name": "r"}}).to_string()
    };
    let mut writer = IndexWriter::default();
    let mut revokes = |subjects: &[&str]| {
        let bindings = resource("clusterrolebindings");
        writer.put(bindings, "", "b", binding(subjects).as_bytes());
        writer.take_revoked()
    };
    assert!(!revokes(&["a"]));
    assert!(!revokes(&["a", "b"]));
    assert!(revokes(&["b"]));
    assert!(revokes(&["c"]));
    writer.remove(resource("clusterrolebindings"), "", "b");
    assert!(writer.take_revoked());
}

fn parse(
    objects: &Objects,
    resource: RbacResource,
) -> HashMap<crate::auth::rbac::index::ObjectKey, Policy> {
    let policies = objects.iter().filter(|((plural, ..), _)| *plural == resource.as_str());
    policies
        .map(|((_, namespace, name), object)| {
            let policy = Policy::parse(resource, namespace, object.to_string().as_bytes());
            ((namespace.as_str().into(), name.as_str().into()), policy)
        })
        .collect()
}
