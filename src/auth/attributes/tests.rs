//! Attributes as kube-apiserver derives them (`endpoints/request/requestinfo.go`,
//! `endpoints/filters/authorization.go`).

use http::Method;
use proptest::prelude::*;

use super::*;

fn attributes(method: &str, uri: &str) -> Attributes {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    Attributes::from_request(&RequestInfo::parse(
        &Method::from_bytes(method.as_bytes()).unwrap(),
        path,
        query,
    ))
}

fn resource(uri: &str) -> Arc<ResourceAttributes> {
    match attributes("GET", uri) {
        Attributes::Resource(attributes) => attributes,
        Attributes::NonResource(_) => panic!("{uri} is a resource"),
    }
}

#[test]
fn the_log_has_no_name_of_an_object() {
    for (method, uri, kind, is_about_secrets) in [
        ("GET", "/api/v1/namespaces/shop/secrets/planted", "get v1/secrets", true),
        (
            "GET",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "get apps/v1/deployments/scale",
            false,
        ),
        ("GET", "/healthz", "get /healthz", false),
    ] {
        let attributes = attributes(method, uri);
        assert_eq!(attributes.describe_kind(), kind);
        assert_eq!(attributes.is_about_secrets(), is_about_secrets);
    }
}

/// Returns verb, group, version, resource, subresource, namespace and name.
fn fields(attributes: &ResourceAttributes) -> [&str; 7] {
    let ResourceAttributes { verb, gvr, subresource, namespace, name, .. } = attributes;
    [verb, &gvr.group, &gvr.version, &gvr.resource, subresource, namespace, name]
}

#[test]
fn names_and_namespaces_are_derived_as_in_the_upstream() {
    let rows: &[(&str, [&str; 7])] = &[
        ("/api/v1/namespaces/a", ["get", "", "v1", "namespaces", "", "a", "a"]),
        ("/api/v1/namespaces/a/status", ["get", "", "v1", "namespaces", "status", "a", "a"]),
        ("/api/v1/namespaces", ["list", "", "v1", "namespaces", "", "", ""]),
        ("/api/v1/nodes/n/proxy/x", ["get", "", "v1", "nodes", "proxy", "", "n"]),
        ("/api/v1/proxy/nodes/n/x", ["proxy", "", "v1", "nodes", "", "", "n"]),
        ("/api/v1/watch/namespaces/a/pods/p", ["watch", "", "v1", "pods", "", "a", "p"]),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Dx&watch=1",
            ["watch", "", "v1", "pods", "", "", "x"],
        ),
        ("/api/v1/pods?fieldSelector=metadata.name!%3Dx", ["list", "", "v1", "pods", "", "", ""]),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Dx%2Fy",
            ["list", "", "v1", "pods", "", "", ""],
        ),
        (
            "/apis/apps/v1/deployments/d/scale",
            ["get", "apps", "v1", "deployments", "scale", "", "d"],
        ),
    ];
    for (uri, expected) in rows {
        assert_eq!(fields(&resource(uri)), *expected, "{uri}");
    }
    let Attributes::Resource(options) = attributes("OPTIONS", "/api/v1/pods") else { panic!() };
    assert_eq!(options.verb, "");
    let Attributes::Resource(collection) = attributes("DELETE", "/api/v1/namespaces/a/pods") else {
        panic!()
    };
    assert_eq!(fields(&collection), ["deletecollection", "", "v1", "pods", "", "a", ""]);
}

#[test]
fn other_paths_have_the_path_and_the_method() {
    for (method, uri, path, verb) in [
        ("GET", "/version?x=y", "/version", "get"),
        ("POST", "/apis/apps/", "/apis/apps/", "post"),
        ("GET", "/", "/", "get"),
        ("HEAD", "/healthz/a%20b", "/healthz/a b", "head"),
    ] {
        let expected = NonResourceAttributes { path: path.to_owned(), verb: verb.to_owned() };
        assert_eq!(attributes(method, uri), Attributes::NonResource(Arc::new(expected)), "{uri}");
    }
}

#[test]
fn a_selector_that_cannot_be_parsed_is_left_out() {
    let attributes =
        resource("/api/v1/pods?fieldSelector=a&labelSelector=b%3D1,c%3E5,d+in+(z,y,z)");
    assert_eq!(attributes.fields, []);
    let [b, d] = attributes.labels.as_slice() else { panic!("there is no operator for c>5") };
    assert_eq!(
        (b.key.as_str(), b.operator, b.values.join(",")),
        ("b", LabelOperator::In, "1".into())
    );
    assert_eq!((d.key.as_str(), d.values.join(",")), ("d", "y,z".into()));
    assert_eq!(resource("/api/v1/pods?labelSelector=a%3D%3D%3D").labels, []);
    // If another parameter cannot be decoded, the selectors stay, but no name is derived from them.
    let undecodable = resource("/api/v1/pods?limit=x&fieldSelector=metadata.name%3Dx");
    assert_eq!((&*undecodable.name, undecodable.fields.len()), ("", 1));
}

#[test]
fn selectors_are_part_of_the_attributes() {
    let one = attributes("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1");
    assert_ne!(one, attributes("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2"));
    assert_ne!(one, attributes("GET", "/api/v1/pods"));
    assert_eq!(one, attributes("GET", "/api/v1/pods?limit=5&fieldSelector=spec.nodeName%3D%3Dn1"));
    assert_ne!(attributes("GET", "/api/v1/pods"), attributes("GET", "/api/v1/pods?watch=1"));
}

#[test]
fn the_weight_includes_selectors() {
    let weight = |uri: &str| attributes("GET", uri).weight_bytes();
    let plain = weight("/api/v1/pods");
    assert_eq!(plain, "listv1pods".len());
    for (part, size) in [
        ("labelSelector=a", size_of::<LabelRequirement>()),
        ("labelSelector=a%3D1", size_of::<LabelRequirement>() + ALLOCATION_BYTES),
        ("fieldSelector=a%3D1", size_of::<FieldRequirement>()),
    ] {
        let (name, term) = part.split_once('=').unwrap();
        let one = weight(&format!("/api/v1/pods?{part}")) - plain;
        assert!(one > size + ALLOCATION_BYTES, "{part}: {one}");
        let many = weight(&format!("/api/v1/pods?{name}={}", vec![term; 1000].join(",")));
        assert_eq!(many - plain, 1000 * one, "{part}");
    }
    let values: Vec<_> = (1000..2000).map(|n| n.to_string()).collect();
    let many = weight(&format!("/api/v1/pods?labelSelector=a+in+({})", values.join(",")));
    assert!(many >= 1000 * (ALLOCATION_BYTES + 4), "{many}");
    let kept = resource("/api/v1/pods?labelSelector=a,b,c%3E1,d,e&fieldSelector=a%3D1,b%3D2,c%3D3");
    assert_eq!((kept.labels.capacity(), kept.fields.capacity()), (4, 3));
}

/// The parts of a request, from which the model derives the attributes.
#[derive(Clone, Debug)]
struct Parts {
    method: &'static str,
    group: &'static str,
    prefix: bool,
    namespace: Option<String>,
    plural: String,
    name: Option<(String, Option<String>)>,
    watch: bool,
    fields: Vec<(&'static str, &'static str, String)>,
    labels: Vec<(&'static str, &'static str, Vec<&'static str>)>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]);
    let method = prop_oneof![Just("GET"), method];
    let field = (
        prop::sample::select(vec!["metadata.name", "spec.nodeName", "x", " y"]),
        prop::sample::select(vec!["=", "==", "!="]),
        "[a-z/.,=\\\\&é%]{0,3}",
    );
    let label = (
        prop::sample::select(vec!["a", "in", "notin", "e.x/b"]),
        prop::sample::select(vec!["=", "==", "!=", "in", "notin", "", "!", "<", ">"]),
        prop::collection::vec(prop::sample::select(vec!["", "v", "in", "7"]), 1..4),
    );
    let path = (
        prop::sample::select(vec!["", "apps", "x.io"]),
        any::<bool>(),
        prop::option::of("[a-z]{1,3}"),
        "[a-z]{1,3}s",
        prop::option::of(("[a-z]{1,3}", prop::option::of("[a-z]{1,3}"))),
    );
    let fields = prop::collection::vec(field, 0..4);
    let labels = prop::collection::vec(label, 0..4);
    (method, path, any::<bool>(), fields, labels).prop_map(
        |(method, path, watch, fields, labels)| {
            let (group, prefix, namespace, plural, name) = path;
            Parts { method, group, prefix, namespace, plural, name, watch, fields, labels }
        },
    )
}

impl Parts {
    fn field_terms(&self) -> Vec<(String, FieldRequirement)> {
        let mut terms: Vec<_> = (self.fields.iter())
            .map(|(key, operator, value)| {
                let escaped: String = (value.chars())
                    .flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\\,=".contains(c))))
                    .collect();
                let (key, value) = ((*key).to_owned(), value.clone());
                let term = FieldRequirement { key, equal: *operator != "!=", value };
                (format!("{}{operator}{escaped}", term.key), term)
            })
            .collect();
        terms.sort_by(|one, other| one.0.cmp(&other.0));
        terms
    }

    fn label_terms(&self) -> Vec<(String, Option<LabelRequirement>)> {
        let mut terms: Vec<_> = (self.labels.iter())
            .map(|(key, operator, values)| {
                let (text, operator, values): (_, _, &[&str]) = match *operator {
                    "" => ((*key).to_owned(), Some(LabelOperator::Exists), &[]),
                    "!" => (format!("!{key}"), Some(LabelOperator::DoesNotExist), &[]),
                    "<" | ">" => (format!("{key}{operator}7"), None, &[]),
                    set @ ("in" | "notin") => {
                        let operator =
                            if set == "in" { LabelOperator::In } else { LabelOperator::NotIn };
                        // Empty values in a set are covered by another test.
                        let given = if values.contains(&"") { &["v"][..] } else { values };
                        (format!("{key} {set} ({})", given.join(",")), Some(operator), given)
                    }
                    one => {
                        let operator =
                            if one == "!=" { LabelOperator::NotIn } else { LabelOperator::In };
                        (format!("{key}{one}{}", values[0]), Some(operator), &values[..1])
                    }
                };
                let mut values: Vec<Box<str>> = values.iter().map(|&value| value.into()).collect();
                values.sort();
                values.dedup();
                let key = (*key).to_owned();
                (text, operator.map(|operator| LabelRequirement { key, operator, values }))
            })
            .collect();
        // The text keeps the order of the parts. Requirements are sorted by key; those of one key
        // keep their order.
        terms.sort_by_key(|(_, term)| term.as_ref().map(|term| term.key.clone()));
        terms
    }

    fn uri(&self) -> String {
        let mut uri =
            if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        uri += "/v1";
        uri += if self.prefix { "/watch" } else { "" };
        if let Some(namespace) = &self.namespace {
            uri += &format!("/namespaces/{namespace}");
        }
        uri += &format!("/{}", self.plural);
        if let Some((name, subresource)) = &self.name {
            uri += &format!("/{name}");
            uri += &subresource.as_ref().map(|text| format!("/{text}")).unwrap_or_default();
        }
        let encoded =
            |text: String| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let fields: Vec<_> = self.field_terms().into_iter().map(|(text, _)| text).rev().collect();
        let labels: Vec<_> = self.label_terms().into_iter().map(|(text, _)| text).collect();
        format!(
            "{uri}?watch={}&fieldSelector={}&labelSelector={}",
            self.watch,
            encoded(fields.join(",")),
            encoded(labels.join(","))
        )
    }

    /// Derives the attributes in the order of the upstream's code.
    fn expected(&self) -> ResourceAttributes {
        let mut name = self.name.as_ref().map(|(name, _)| name.clone()).unwrap_or_default();
        let mut verb = match self.method {
            _ if self.prefix => "watch",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "get",
        };
        let fields: Vec<_> = self.field_terms().into_iter().map(|(_, term)| term).collect();
        if name.is_empty() && verb == "get" {
            verb = if self.watch { "watch" } else { "list" };
            let required = fields.iter().find(|term| term.equal && term.key == "metadata.name");
            name = required.map(|term| term.value.clone()).unwrap_or_default();
            if name.contains(['/', '%']) || name == "." || name == ".." {
                name.clear();
            }
        }
        if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let selects = !self.prefix && ["list", "watch", "deletecollection"].contains(&verb);
        let labels = self.label_terms().into_iter().filter_map(|(_, term)| term);
        ResourceAttributes {
            verb: verb.into(),
            gvr: GroupVersionResource::new(self.group, "v1", &self.plural),
            subresource: self.name.clone().and_then(|(_, text)| text).unwrap_or_default(),
            namespace: self.namespace.clone().unwrap_or_default().into(),
            name: name.into(),
            fields: if selects { fields } else { Vec::new() },
            labels: if selects { labels.collect() } else { Vec::new() },
        }
    }
}

proptest! {
    #[test]
    fn any_request_has_the_attributes_of_the_model(parts in parts()) {
        let uri = parts.uri();
        let expected = Attributes::Resource(Arc::new(parts.expected()));
        prop_assert_eq!(attributes(parts.method, &uri), expected, "{} {}", parts.method, uri);
    }
}
