//! Tests of content negotiation, with expectations from `docs/semantics.md` §8.

use proptest::prelude::*;

use super::*;
use crate::media_type::{ErrorForm, View};

fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn form(accept: &str, shape: Shape) -> Option<Form> {
    form_of(accept, shape, Verb::Get)
}

fn form_of(accept: &str, shape: Shape, verb: Verb) -> Option<Form> {
    negotiate(&headers(&[(ACCEPT, accept)]), &Query::default(), shape, verb)
}

const JSON: Option<Form> = Some(Form::JSON);
const PRETTY: Option<Form> = Some(Form { pretty: true, ..Form::JSON });

const PROTO: Option<Form> = Some(Form { encoding: Encoding::Protobuf, ..Form::JSON });
const METADATA_JSON: Option<Form> = Some(Form { view: View::Metadata, ..Form::JSON });
const METADATA_PROTO: Option<Form> =
    Some(Form { encoding: Encoding::Protobuf, view: View::Metadata, pretty: false });

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[test]
fn what_most_clients_send_is_what_the_parser_reads() {
    for accept in [super::JSON, JSON_OR_ANY, super::PROTOBUF, PROTOBUF_OR_JSON] {
        let accept = std::str::from_utf8(accept).unwrap();
        for shape in [Shape::BuiltIn, Shape::Custom] {
            for verb in [Verb::Get, Verb::List, Verb::Watch] {
                let parsed = negotiate_accept(accept, shape, verb);
                assert_eq!(form_of(accept, shape, verb), parsed, "{accept}");
            }
        }
    }
}

/// KEP-5958: the parameter counts in the clause that is chosen.
#[test]
fn a_client_may_do_without_managed_fields() {
    let drop = ";drop=metadata.managedFields";
    let without = |form: Option<Form>| {
        form.map(|form| Form { view: form.view.without_managed_fields(), ..form })
    };
    for (accept, expected) in [
        (format!("application/json{drop}"), without(JSON)),
        (format!("application/json{drop};pretty=1"), without(PRETTY)),
        (format!("{PROTOBUF}{drop},application/json"), without(PROTO)),
        (format!("{PROTOBUF},application/json{drop}"), PROTO),
        (format!("application/json{drop},*/*"), without(JSON)),
        (format!("application/json;q=0.5{drop},{PROTOBUF}"), PROTO),
        (format!("{METADATA}{drop}"), without(METADATA_JSON)),
        (format!("{METADATA}{drop},application/json"), without(METADATA_JSON)),
        (format!("{TABLE}{drop},application/json{drop}"), None),
        ("application/json;drop=".to_owned(), JSON),
        ("application/json;drop=metadata.managedfields".to_owned(), None),
        (format!("application/json{drop}+metadata.annotations"), None),
        (format!("application/json{drop}+metadata.managedFields"), None),
        ("application/json;drop".to_owned(), JSON),
    ] {
        assert_eq!(form(&accept, Shape::BuiltIn), expected, "{accept}");
    }
    // A custom resource has no protobuf.
    let accept = format!("{PROTOBUF}{drop},application/json{drop}");
    assert_eq!(form(&accept, Shape::Custom), without(JSON));
}

#[test]
fn accept_is_negotiated_as_upstream() {
    let kubectl =
        format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");

    let table_protobuf = TABLE.replace("json", "vnd.kubernetes.protobuf") + ",application/json";
    let metadata_protobuf = METADATA.replace("json", "vnd.kubernetes.protobuf");
    let metadata_client = format!("{metadata_protobuf},{METADATA},application/json");
    let rows: &[(&str, Option<Form>, Option<Form>)] = &[
        ("", JSON, JSON),
        ("application/json", JSON, JSON),
        ("application/json, */*", JSON, JSON),
        ("*/*", JSON, JSON),
        ("*/*, application/json", JSON, JSON),
        ("application/*", None, JSON),
        ("*", None, JSON),
        ("*, application/json", JSON, JSON),
        ("text/*", None, None),
        ("*/json", None, None),
        ("APPLICATION/JSON", None, None),
        ("application/json;charset=utf-8", JSON, JSON),
        ("application/json; charset=utf-8", JSON, JSON),
        ("application/json; charset=utf-8;foo=bar", None, None),
        ("application/json;foo=bar,application/json", None, None),
        ("application/json;foo", JSON, JSON),
        ("application/json;stream=watch", JSON, JSON),
        ("application/json;stream=", JSON, JSON),
        ("application/json;stream=other", None, None),
        ("application/json;sv=v1", JSON, JSON),
        ("application/json;sv=v2", None, None),
        ("application/json;sv=v2,application/json", JSON, JSON),
        ("application/json;pretty=1", PRETTY, PRETTY),
        ("application/json;pretty=0", JSON, JSON),
        ("application/json;pretty=true", JSON, JSON),
        ("application/json;pretty=0;pretty=1", PRETTY, PRETTY),
        ("application/json;pretty=1,application/json", PRETTY, PRETTY),
        ("application/json,application/json;pretty=1", JSON, JSON),
        ("application/json;q=.1,application/json;pretty=1", PRETTY, PRETTY),
        ("application/json;q=0", JSON, JSON),
        ("application/json;q=bad", JSON, JSON),
        ("application/yaml", None, None),
        ("application/yaml,application/json", None, None),
        ("application/json,application/yaml", JSON, JSON),
        ("application/yaml;q=.5,application/json;q=.5", None, None),
        ("application/yaml;q=.5,application/json;q=0.6", JSON, JSON),
        ("application/yaml;q=bad,application/json", None, None),
        ("application/yaml;q=0.5,*/*", None, None),
        (PROTOBUF, PROTO, None),
        ("application/vnd.kubernetes.protobuf,application/json", PROTO, JSON),
        ("application/vnd.kubernetes.protobuf;stream=watch,application/json", PROTO, JSON),
        ("application/vnd.kubernetes.protobuf;pretty=1", PROTO, None),
        ("application/vnd.kubernetes.protobuf;q=0.5,application/json", JSON, JSON),
        ("application/vnd.kubernetes.protobuf, */*", PROTO, JSON),
        ("*/*,application/vnd.kubernetes.protobuf", PROTO, JSON),
        ("application/vnd.kubernetes.protobuf;q=0.9,*/*", None, JSON),
        ("application/json,application/vnd.kubernetes.protobuf", JSON, JSON),
        ("application/cbor,application/json", None, None),
        (TABLE, None, None),
        (METADATA, METADATA_JSON, METADATA_JSON),
        (&metadata_protobuf, METADATA_PROTO, METADATA_PROTO),
        (&metadata_client, METADATA_PROTO, METADATA_PROTO),
        (&kubectl, None, None),
        ("application/json;as=", JSON, JSON),
        ("application/vnd.kubernetes.protobuf;as=,application/json", PROTO, JSON),
        ("application/json;g=meta.k8s.io,application/json", JSON, JSON),
        ("application/json;as=Table;g=meta.k8s.io;v=v2,application/json", JSON, JSON),
        ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", None, None),
        (&table_protobuf, JSON, JSON),
        ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", JSON, JSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON, JSON),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", JSON, JSON),
        ("text/html", None, None),
        ("text/html,application/json", JSON, JSON),
        ("application/json,", JSON, JSON),
        ("json,application/json", JSON, JSON),
        ("application/json/x,application/json", JSON, JSON),
        ("application/json;profile=\"a,b\"", None, None),
        (" application/json ; pretty=1", PRETTY, PRETTY),
        ("application/json\t,*/*", None, None),
        (",", None, None),
    ];
    for (accept, built_in, custom) in rows {
        assert_eq!(form(accept, Shape::BuiltIn), *built_in, "built-in, {accept}");
        assert_eq!(form(accept, Shape::Custom), *custom, "custom, {accept}");
    }
}

#[test]
fn metadata_only_kinds_must_fit_the_verb() {
    let list = METADATA.replace("Metadata;", "MetadataList;");
    for (accept, get, listed) in
        [(METADATA, METADATA_JSON, None), (list.as_str(), None, METADATA_JSON)]
    {
        for shape in [Shape::BuiltIn, Shape::Custom] {
            assert_eq!(form_of(accept, shape, Verb::Get), get);
            assert_eq!(form_of(accept, shape, Verb::Watch), get);
            assert_eq!(form_of(accept, shape, Verb::List), listed);
        }
    }
    for other in ["v=v2", "v=v1;as=Other"] {
        assert_eq!(form(&METADATA.replace("v=v1", other), Shape::BuiltIn), None, "{other}");
    }
    let other_group = METADATA.replace("meta.k8s.io", "example.com");
    assert_eq!(form(&other_group, Shape::BuiltIn), None);
    // Parameters in any order, with others among them.
    let accept = "application/json;v=v1;charset=utf-8;g=meta.k8s.io;as=PartialObjectMetadata";
    assert_eq!(form(accept, Shape::Custom), METADATA_JSON);
}

#[test]
fn metadata_of_v1beta1_is_left_to_the_upstream() {
    let beta = METADATA.replace("v=v1", "v=v1beta1");
    let beta_list = beta.replace("Metadata;", "MetadataList;");
    for shape in [Shape::BuiltIn, Shape::Custom] {
        for accept in [&beta, &beta.replace("json", "vnd.kubernetes.protobuf")] {
            assert_eq!(form_of(accept, shape, Verb::Get), None);
            assert_eq!(form_of(accept, shape, Verb::Watch), None);
        }
        assert_eq!(form_of(&beta_list, shape, Verb::List), None);
        // Another clause is served only where the upstream prefers it.
        assert_eq!(form(&format!("{beta},application/json"), shape), None);
        assert_eq!(form(&format!("{METADATA},{beta}"), shape), METADATA_JSON);
    }
}

#[test]
fn errors_are_encoded_as_the_first_clause_without_a_conversion() {
    let metadata_protobuf = METADATA.replace("json", "vnd.kubernetes.protobuf");
    let form =
        |accept: &str, query| error_form(&headers(&[(ACCEPT, accept)]), &Query::parse(query));
    let (plain, pretty) = (ErrorForm::Json { pretty: false }, ErrorForm::Json { pretty: true });
    let (yaml, protobuf) = (ErrorForm::Yaml, ErrorForm::Protobuf);
    for (accept, query, expected) in [
        ("", "", plain),
        ("application/json", "pretty=1", pretty),
        ("application/json;pretty=1", "", pretty),
        ("application/json", "p%72etty=1", plain),
        (PROTOBUF, "pretty=1", protobuf),
        ("application/vnd.kubernetes.protobuf,application/json", "", protobuf),
        // An error has no metadata-only form.
        (METADATA, "", pretty),
        (&format!("{METADATA},application/json"), "", plain),
        (&metadata_protobuf, "", pretty),
        (&format!("{metadata_protobuf},{PROTOBUF}"), "", protobuf),
        (&format!("{metadata_protobuf},application/json"), "", plain),
        ("application/json;alias=x", "", plain),
        ("application/json;v=v1", "", pretty),
        ("application/yaml", "", yaml),
        ("application/yaml", "pretty=1", yaml),
        ("application/yaml;as=Table,application/json", "", plain),
        ("application/yaml,application/json", "", yaml),
        ("application/json,application/yaml", "", plain),
        ("application/json;q=0.5,application/yaml", "", yaml),
        ("application/yaml;stream=watch,application/json", "", plain),
        ("application/json;stream=watch", "", plain),
        ("application/json;sv=v1", "", pretty),
        ("text/html", "", pretty),
        ("application/cbor,application/json", "", plain),
        // go-restful's filter comes after authentication.
        ("application/*", "", plain),
        ("*", "", plain),
        ("text/html,*/*;q=0.8", "", plain),
    ] {
        assert_eq!(form(accept, query), expected, "{accept} {query}");
    }
}

#[test]
fn many_clauses_are_decided_only_where_order_does_not_matter() {
    let many = ["application/json"; 13].join(",");
    assert_eq!(form(&many, Shape::BuiltIn), JSON);
    assert_eq!(form(&format!("{many},application/yaml"), Shape::BuiltIn), None);
    let few = ["application/json"; 11].join(",");
    assert_eq!(form(&format!("{few},application/yaml"), Shape::BuiltIn), JSON);
}

#[test]
fn only_the_first_line_counts() {
    let two = headers(&[(ACCEPT, "application/json"), (ACCEPT, "application/yaml")]);
    assert_eq!(negotiate(&two, &Query::default(), Shape::BuiltIn, Verb::Get), JSON);
    let two = headers(&[(ACCEPT, "application/yaml"), (ACCEPT, "application/json")]);
    assert_eq!(negotiate(&two, &Query::default(), Shape::BuiltIn, Verb::Get), None);
    assert_eq!(negotiate(&HeaderMap::new(), &Query::default(), Shape::BuiltIn, Verb::Get), JSON);
    let latin = headers(&[(ACCEPT, "application/json;a=é")]);
    assert_eq!(negotiate(&latin, &Query::default(), Shape::BuiltIn, Verb::Get), None);
}

#[test]
fn curl_and_browsers_get_indented_json() {
    let rows = [
        ("", "curl/8.5.0", PRETTY),
        ("", "Wget/1.21", PRETTY),
        ("", "Mozilla/5.0 (X11)", PRETTY),
        ("", "Mozilla/4.0", JSON),
        ("", "Curl/8.5.0", JSON),
        ("", "curl/8 é", PRETTY),
        ("", "my curl", JSON),
        ("", "kubectl/v1.36.2", JSON),
        ("pretty=false", "curl/8.5.0", JSON),
        ("pretty=0", "curl/8.5.0", JSON),
        ("pretty=yes", "curl/8.5.0", JSON),
        ("pretty=", "curl/8.5.0", PRETTY),
        ("pretty", "curl/8.5.0", PRETTY),
        ("pretty=", "kubectl", JSON),
        ("pretty=1", "kubectl", PRETTY),
        ("pretty=t", "kubectl", PRETTY),
        ("pretty=T", "kubectl", PRETTY),
        ("pretty=true", "kubectl", PRETTY),
        ("pretty=TRUE", "kubectl", PRETTY),
        ("pretty=True", "kubectl", PRETTY),
        ("pretty=tRUE", "kubectl", JSON),
        ("pretty=false&pretty=true", "kubectl", JSON),
    ];
    for (query, agent, expected) in rows {
        let query = Query::parse(query);
        let headers = headers(&[(USER_AGENT, agent)]);
        let form = negotiate(&headers, &query, Shape::Custom, Verb::Get);
        assert_eq!(form, expected, "{query:?} {agent}");
        assert_eq!(
            negotiate(&headers, &query, Shape::Custom, Verb::Watch),
            JSON,
            "a watch, {agent}"
        );
    }
    let pretty = headers(&[(ACCEPT, "application/json;pretty=1")]);
    let query = Query::parse("pretty=false");
    assert_eq!(negotiate(&pretty, &query, Shape::BuiltIn, Verb::List), PRETTY);
}

#[test]
fn gzip_needs_the_bare_token() {
    let rows = [
        ("gzip", true),
        ("deflate, gzip", true),
        (" gzip ,br", true),
        ("gzip;q=1", false),
        ("GZIP", false),
        ("*", false),
        ("br", false),
        ("x-gzip", false),
        ("", false),
    ];
    for (value, expected) in rows {
        assert_eq!(accepts_gzip(&headers(&[(ACCEPT_ENCODING, value)])), expected, "{value}");
    }
    assert!(!accepts_gzip(&HeaderMap::new()));
    assert!(!accepts_gzip(&headers(&[(ACCEPT_ENCODING, "br"), (ACCEPT_ENCODING, "gzip")])));
}

proptest! {
    #[test]
    fn any_header_is_read_without_panic(
        accept in "((application|\\*|text|)/?(json|\\*|yaml|)(;| ?q=[0-9.]{0,3}|;as=Table|=)?,?){0,5}|[ -~]{0,40}",
        verb in prop_oneof![Just(Verb::Get), Just(Verb::List), Just(Verb::Watch)],
    ) {
        let _form = negotiate(
            &headers(&[(ACCEPT, &accept)]), &Query::default(), Shape::BuiltIn, verb,
        );
    }

    /// Clauses that all mean JSON give JSON, in any order and with any quality.
    #[test]
    fn clauses_that_all_mean_json_are_json(
        clauses in proptest::collection::vec(
            "(application/json|\\*/\\*|text/html)(;q=(0|1|0?\\.[0-9]))?", 1..20,
        ),
    ) {
        let accept = format!("{},application/json", clauses.join(","));
        prop_assert_eq!(form(&accept, Shape::BuiltIn), JSON);
    }
}
