//! Tests of the selectable fields of built-in and custom resources.

use super::*;

fn built_in(group: &str, resource: &str) -> SelectableFields {
    SelectableFields::built_in(&GroupVersionResource::new(group, "v1", resource))
}

fn labels(fields: &SelectableFields) -> Vec<&str> {
    fields.sources().iter().map(|source| &*source.label).collect()
}

#[test]
fn a_kind_without_a_row_has_name_and_namespace() {
    for fields in [
        built_in("", "configmaps"),
        built_in("apps", "deployments"),
        built_in("apps", "secrets"),
        built_in("", "persistentvolumes"),
        built_in("batch", "cronjobs"),
        SelectableFields::default(),
    ] {
        assert!(fields.is_empty());
        assert_eq!(fields.find("metadata.name"), Some(Field::Name));
        assert_eq!(fields.find("metadata.namespace"), Some(Field::Namespace));
        for label in ["", "name", "metadata", "metadata.uid", "status.phase", "spec.host"] {
            assert_eq!(fields.find(label), None, "{label}");
        }
    }
}

#[test]
fn built_in_kinds_have_the_labels_of_the_table() {
    let rows: &[(&str, &str, bool, &[&str])] = &[
        (
            "",
            "pods",
            true,
            &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
        ),
        ("", "nodes", false, &["spec.unschedulable"]),
        ("", "namespaces", false, &["status.phase"]),
        ("", "secrets", true, &["type"]),
        ("", "services", true, &["spec.clusterIP", "spec.type"]),
        ("", "replicationcontrollers", true, &["status.replicas"]),
        ("batch", "jobs", true, &["status.successful"]),
        ("certificates.k8s.io", "certificatesigningrequests", false, &["spec.signerName"]),
        ("certificates.k8s.io", "clustertrustbundles", false, &["spec.signerName"]),
        (
            "certificates.k8s.io",
            "podcertificaterequests",
            false,
            &["spec.signerName", "spec.podName", "spec.nodeName"],
        ),
        ("resource.k8s.io", "resourceslices", false, &["spec.nodeName", "spec.driver"]),
    ];
    assert_eq!(rows.len(), BUILT_IN.len());
    for (group, resource, namespace, expected) in rows {
        let fields = built_in(group, resource);
        assert_eq!(labels(&fields), *expected, "{resource}");
        assert_eq!(fields.len(), expected.len());
        assert_eq!(fields.find("metadata.name"), Some(Field::Name), "{resource}");
        assert_eq!(fields.find("metadata.namespace").is_some(), *namespace, "{resource}");
        for (index, label) in expected.iter().enumerate() {
            assert_eq!(fields.find(label), Some(Field::Value(index)), "{resource} {label}");
        }
    }
}

#[test]
fn older_labels_are_rewritten_where_the_upstream_does() {
    let pods = built_in("", "pods");
    assert_eq!(pods.find("spec.host"), pods.find("spec.nodeName"));
    assert_eq!(built_in("resource.k8s.io", "resourceslices").find("spec.host"), None);
}

#[test]
fn a_custom_resource_has_its_plain_paths() {
    let paths: Vec<String> = [
        ".spec.color",
        ".spec.my-size",
        ".spec['odd']",
        ".spec.list[0]",
        ".spec..x",
        ".spec.",
        ".",
        "spec.bare",
        "",
        ".spec.dé",
    ]
    .map(Into::into)
    .into();
    let fields = SelectableFields::custom(true, &paths);
    assert_eq!(labels(&fields), ["spec.color", "spec.my-size"]);
    assert_eq!(&*fields.sources()[0].path, ["spec".into(), "color".into()]);
    assert_eq!(fields.find("metadata.namespace"), Some(Field::Namespace));
    assert_eq!(SelectableFields::custom(false, &paths).find("metadata.namespace"), None);
}

#[test]
fn values_follow_their_rule() {
    let rows = [
        (Rule::Text, None, ""),
        (Rule::Text, Some("null"), ""),
        (Rule::Text, Some(r#""node-1""#), "node-1"),
        (Rule::Text, Some(r#" "node-1" "#), "node-1"),
        (Rule::Text, Some(r#""a\"b\u003c\n""#), "a\"b<\n"),
        (Rule::Text, Some(r#""""#), ""),
        (Rule::Text, Some(r#"""#), ""),
        (Rule::Text, Some(r#""\q""#), ""),
        (Rule::Text, Some("3"), ""),
        (Rule::Text, Some("{}"), ""),
        (Rule::Bool, None, "false"),
        (Rule::Bool, Some("null"), "false"),
        (Rule::Bool, Some("false"), "false"),
        (Rule::Bool, Some("true"), "true"),
        (Rule::Number, None, "0"),
        (Rule::Number, Some("null"), "0"),
        (Rule::Number, Some("12"), "12"),
        (Rule::Number, Some("-1"), "-1"),
        (Rule::Number, Some("-"), "0"),
        (Rule::Number, Some("{}"), "0"),
        (Rule::Empty, None, ""),
        (Rule::Empty, Some(r#"[{"ip":"10.0.0.1"}]"#), ""),
        (Rule::Printed, None, ""),
        (Rule::Printed, Some("null"), ""),
        (Rule::Printed, Some(r#""red""#), "red"),
        (Rule::Printed, Some("3"), "3"),
        (Rule::Printed, Some("true"), "true"),
        (Rule::Printed, Some("{}"), ""),
        (Rule::Printed, Some("[1]"), ""),
    ];
    for (rule, raw, expected) in rows {
        assert_eq!(&*rule.value_of(raw), expected.as_bytes(), "{rule:?} {raw:?}");
    }
}

#[test]
fn a_jobs_selectable_field_reads_status_succeeded() {
    let jobs = built_in("batch", "jobs");
    assert_eq!(&*jobs.sources()[0].path, ["status".into(), "succeeded".into()]);
}
