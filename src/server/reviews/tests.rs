//! Reviews and answers, with bytes of kube-apiserver 1.36.2.

use super::*;
use crate::server::reviews::kind::ReviewKind::{
    LocalSubjectAccess, SelfSubject, SelfSubjectAccess, SubjectAccess,
};

const REASON: &str = r#"RBAC: allowed by RoleBinding "b/a" of ClusterRole "pods" to User "alice""#;
/// 2026-11-29T18:31:08Z.
const NOW: i64 = 1_795_977_068;

fn request(kind: ReviewKind, encoding: Encoding) -> ReviewRequest {
    let namespace = if kind == LocalSubjectAccess { "a" } else { "" };
    let form = Form { encoding, ..Form::JSON };
    let manager = "go".to_owned();
    ReviewRequest { kind, encoding, length: 0, form, namespace: namespace.into(), manager }
}

/// Returns the spec of a review in JSON.
fn spec(kind: ReviewKind, json: &str) -> Option<Spec> {
    let request = request(kind, Encoding::Json);
    let body = Bytes::copy_from_slice(json.as_bytes());
    decode::decode(kind, Encoding::Json, &request.namespace, &body)
}

/// Returns the allowed answer to a review.
fn answer(kind: ReviewKind, encoding: Encoding, spec: &Spec, now: i64) -> Vec<u8> {
    let request = request(kind, encoding);
    encode::allowed(&AnswerContext { now, ..request.context(true) }, spec, REASON).unwrap()
}

fn hex(text: &str) -> Bytes {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn json_of(kind: ReviewKind, metadata: &str, spec: &str) -> String {
    let name = kind.name();
    format!(
        r#"{{"kind":"{name}","apiVersion":"authorization.k8s.io/v1","metadata":{{{metadata}}},"spec":{spec}"#
    )
}

#[test]
fn an_answer_in_json_has_the_bytes_of_the_api_server() {
    for (kind, spec_json, fields, reordered) in [
        (
            SelfSubjectAccess,
            r#"{"resourceAttributes":{"namespace":"a","verb":"get","version":"v1","resource":"pods","name":"x\u003cy"}}"#,
            r#""f:resourceAttributes":{".":{},"f:name":{},"f:namespace":{},"f:resource":{},"f:verb":{},"f:version":{}}"#,
            r#"{"resourceAttributes":{"name":"x<y","verb":"get","group":"","version":"v1","resource":"pods","namespace":"a"}}"#,
        ),
        (
            SelfSubjectAccess,
            r#"{"resourceAttributes":{}}"#,
            r#""f:resourceAttributes":{}"#,
            r#"{"nonResourceAttributes":null,"resourceAttributes":{}}"#,
        ),
        (
            SelfSubjectAccess,
            r#"{"nonResourceAttributes":{"path":"/x","verb":"get"}}"#,
            r#""f:nonResourceAttributes":{".":{},"f:path":{},"f:verb":{}}"#,
            r#"{"nonResourceAttributes":{"verb":"get","path":"/x"}}"#,
        ),
        (
            SubjectAccess,
            r#"{"resourceAttributes":{"namespace":"a","verb":"get","resource":"pods"},"user":"alice","groups":["x","system:authenticated"],"extra":{"a":["2","3"],"z.io/b":["1"]},"uid":"7"}"#,
            r#""f:extra":{".":{},"f:a":{},"f:z.io/b":{}},"f:groups":{},"f:resourceAttributes":{".":{},"f:namespace":{},"f:resource":{},"f:verb":{}},"f:uid":{},"f:user":{}"#,
            r#"{"uid":"7","extra":{"z.io/b":["1"],"a":["2","3"]},"user":"alice","groups":["x","system:authenticated"],"resourceAttributes":{"namespace":"a","verb":"get","resource":"pods"}}"#,
        ),
        (
            LocalSubjectAccess,
            r#"{"resourceAttributes":{"namespace":"a","verb":"get","resource":"pods"},"groups":["x"]}"#,
            r#""f:groups":{},"f:resourceAttributes":{".":{},"f:namespace":{},"f:resource":{},"f:verb":{}}"#,
            r#"{"resourceAttributes":{"namespace":"a","verb":"get","resource":"pods"},"groups":["x"]}"#,
        ),
    ] {
        let namespace = if kind == LocalSubjectAccess { r#""namespace":"a","# } else { "" };
        let managed = format!(
            r#"{namespace}"managedFields":[{{"manager":"go","operation":"Update","apiVersion":"authorization.k8s.io/v1","time":"2026-11-29T18:31:08Z","fieldsType":"FieldsV1","fieldsV1":{{"f:spec":{{{fields}}}}}}}]"#
        );
        let reason = REASON.replace('"', r#"\""#);
        let expected = json_of(kind, &managed, spec_json)
            + &format!(r#","status":{{"allowed":true,"reason":"{reason}"}}}}"#);
        let of_go = r#""creationTimestamp":null"#;
        for sent in [
            json_of(kind, "", spec_json) + "}",
            json_of(kind, of_go, reordered) + r#","status":{"allowed":false}}"#,
            format!(r#"{{"spec":{reordered}}}"#),
        ] {
            let spec = spec(kind, &sent).unwrap_or_else(|| panic!("{sent}"));
            let answer = answer(kind, Encoding::Json, &spec, NOW);
            assert_eq!(String::from_utf8(answer).unwrap(), expected);
        }
    }
}

#[test]
fn an_answer_in_protobuf_has_the_bytes_of_the_api_server() {
    const SELF: [&str; 2] = [
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a65637441636365737352657669657712360a100a0012001a0022002a0032003800420012180a160a016112036765741a0022002a04706f647332003a001a08080012001a0020001a002200",
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577129b020aac010a0012001a0022002a003200380042008a0198010a02676f12065570646174651a17617574686f72697a6174696f6e2e6b38732e696f2f7631220808fadeb1d806100032084669656c647356313a5b0a597b22663a73706563223a7b22663a7265736f7572636541747472696275746573223a7b222e223a7b7d2c22663a6e616d657370616365223a7b7d2c22663a7265736f75726365223a7b7d2c22663a76657262223a7b7d7d7d7d420012180a160a016112036765741a0022002a04706f647332003a001a5008011248524241433a20616c6c6f77656420627920526f6c6542696e64696e672022622f6122206f6620436c7573746572526f6c652022706f64732220746f20557365722022616c696365221a0020001a002200",
    ];
    const OTHER: [&str; 2] = [
        "6b3873000a2e0a17617574686f72697a6174696f6e2e6b38732e696f2f763112135375626a65637441636365737352657669657712510a100a0012001a0022002a0032003800420012330a160a016112036765741a0022002a04706f647332003a001a05616c6963652201782a0d0a06612e696f2f6b12030a017632001a08080012001a0020001a002200",
        "6b3873000a2e0a17617574686f72697a6174696f6e2e6b38732e696f2f763112135375626a65637441636365737352657669657712f3020ae9010a0012001a0022002a003200380042008a01d5010a02676f12065570646174651a17617574686f72697a6174696f6e2e6b38732e696f2f7631220808fadeb1d806100032084669656c647356313a97010a94017b22663a73706563223a7b22663a6578747261223a7b222e223a7b7d2c22663a612e696f2f6b223a7b7d7d2c22663a67726f757073223a7b7d2c22663a7265736f7572636541747472696275746573223a7b222e223a7b7d2c22663a6e616d657370616365223a7b7d2c22663a7265736f75726365223a7b7d2c22663a76657262223a7b7d7d2c22663a75736572223a7b7d7d7d420012330a160a016112036765741a0022002a04706f647332003a001a05616c6963652201782a0d0a06612e696f2f6b12030a017632001a5008011248524241433a20616c6c6f77656420627920526f6c6542696e64696e672022622f6122206f6620436c7573746572526f6c652022706f64732220746f20557365722022616c696365221a0020001a002200",
    ];
    const LOCAL: [&str; 2] = [
        "6b3873000a330a17617574686f72697a6174696f6e2e6b38732e696f2f763112184c6f63616c5375626a656374416363657373526576696577123f0a100a0012001a0022002a0032003800420012210a160a016112036765741a0022002a04706f647332003a001a05616c69636532001a08080012001a0020001a002200",
        "6b3873000a330a17617574686f72697a6174696f6e2e6b38732e696f2f763112184c6f63616c5375626a656374416363657373526576696577 12b1020ab9010a0012001a016122002a003200380042008a01a4010a02676f12065570646174651a17617574686f72697a6174696f6e2e6b38732e696f2f7631220808fadeb1d806100032084669656c647356313a670a657b22663a73706563223a7b22663a7265736f7572636541747472696275746573223a7b222e223a7b7d2c22663a6e616d657370616365223a7b7d2c22663a7265736f75726365223a7b7d2c22663a76657262223a7b7d7d2c22663a75736572223a7b7d7d7d420012210a160a016112036765741a0022002a04706f647332003a001a05616c69636532001a5008011248524241433a20616c6c6f77656420627920526f6c6542696e64696e672022622f6122206f6620436c7573746572526f6c652022706f64732220746f20557365722022616c696365221a0020001a002200",
    ];
    let now = NOW + 14;
    for (kind, [sent, expected]) in
        [(SelfSubjectAccess, SELF), (SubjectAccess, OTHER), (LocalSubjectAccess, LOCAL)]
    {
        let ReviewRequest { namespace, .. } = request(kind, Encoding::Protobuf);
        let decode = |body: &Bytes| decode::decode(kind, Encoding::Protobuf, &namespace, body);
        let body = hex(sent);
        let spec = decode(&body).unwrap();
        assert_eq!(answer(kind, Encoding::Protobuf, &spec, now), hex(&expected.replace(' ', "")));
        // Nothing is ignored: not a byte more or less, and no other value of most bytes.
        assert_eq!(decode(&body.slice(..body.len() - 1)), None);
        assert_eq!(decode(&Bytes::from([&body[..], &[0x2a, 0]].concat())), None);
        assert_eq!(decode(&Bytes::from([&body[..], &[0x22, 0]].concat())), None);
    }
}

#[test]
fn the_sender_is_named_with_the_bytes_of_the_api_server() {
    const PROTOBUF: [&str; 2] = [
        "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375626a656374526576696577121a0a100a0012001a0022002a0032003800420012060a040a0012001a002200",
        "6b3873000a2d0a1861757468656e7469636174696f6e2e6b38732e696f2f7631121153656c665375626a65637452657669657712430a180a0012001a0022002a0032003800420808fadeb1d806100012270a250a05616c6963651201321a036465761a1473797374656d3a61757468656e746963617465641a002200",
    ];
    let groups = ["dev", "system:authenticated"].map(str::to_owned).to_vec();
    let user = User::new("alice".to_owned(), "2".to_owned(), groups, [].into());
    let name = |encoding, now| {
        let request = request(SelfSubject, encoding);
        encode::self_subject(&AnswerContext { now, ..request.context(true) }, &user).unwrap()
    };
    assert_eq!(name(Encoding::Protobuf, NOW + 14), hex(PROTOBUF[1]));
    let json = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{"creationTimestamp":"2026-11-29T18:31:08Z"},"status":{"userInfo":{"username":"alice","uid":"2","groups":["dev","system:authenticated"]}}}"#;
    assert_eq!(String::from_utf8(name(Encoding::Json, NOW)).unwrap(), json);
    let read = request(SelfSubject, Encoding::Protobuf).read(&hex(PROTOBUF[0]));
    assert!(matches!(read, Some(Review::SelfSubject)), "{read:?}");
    for (sent, is_read) in [
        ("{}", true),
        (r#"{"metadata":{"creationTimestamp":null},"status":{"userInfo":{}}}"#, true),
        (r#"{"spec":null}"#, false),
        (r#"{"status":{"userInfo":{"username":"bob"}}}"#, false),
        (r#"{"kind":"SelfSubjectAccessReview"}"#, false),
    ] {
        assert_eq!(spec(SelfSubject, sent).is_some(), is_read, "{sent}");
    }
}

#[test]
fn what_only_the_api_server_understands_is_not_read() {
    const GET: &str = r#""resourceAttributes":{"namespace":"a","verb":"get"}"#;
    let with = |more: &str| format!(r#"{{"spec":{{{GET}{more}}}}}"#);
    for (kind, sent) in [
        (SelfSubjectAccess, String::new()),
        (SelfSubjectAccess, "null".to_owned()),
        (SelfSubjectAccess, "{}".to_owned()),
        (SelfSubjectAccess, r#"{"spec":{}}"#.to_owned()),
        (SelfSubjectAccess, with("") + "x"),
        (SelfSubjectAccess, with(r#","user":null"#)),
        (SelfSubjectAccess, with(r#","other":1"#)),
        (SelfSubjectAccess, with(r#","nonResourceAttributes":{}"#)),
        (SelfSubjectAccess, with(&format!(",{GET}"))),
        (SelfSubjectAccess, with("").replace("}}}", r#","fieldSelector":{}}}}"#)),
        (SelfSubjectAccess, with("").replace("}}}", r#","labelSelector":null}}}"#)),
        (SelfSubjectAccess, with("").replace("get", r"\ud800")),
        (SelfSubjectAccess, with("").replace(r#""get""#, "1")),
        (SelfSubjectAccess, with("").replace("verb", "Verb")),
        (SelfSubjectAccess, with("").replacen('{', r#"{"kind":"SubjectAccessReview","#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"apiVersion":"v1","#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"metadata":{"name":"x"},"#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"metadata":{"namespace":"a"},"#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"metadata":{"managedFields":[]},"#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"status":{"allowed":true},"#, 1)),
        (SubjectAccess, with("")),
        (SubjectAccess, with(r#","user":"","groups":[]"#)),
        (SubjectAccess, with(r#","user":"u","extra":{"a":[]}"#)),
        (SubjectAccess, with(r#","user":"u","extra":{"a<":["b"]}"#)),
        (SubjectAccess, with(r#","user":"u","extra":{"a":["b"],"a":["b"]}"#)),
        (SubjectAccess, with(r#","user":"u","group":["g"]"#)),
        (LocalSubjectAccess, with(r#","user":"u""#).replace(r#""a""#, r#""b""#)),
        (
            LocalSubjectAccess,
            r#"{"spec":{"user":"u","nonResourceAttributes":{"path":"/"}}}"#.to_owned(),
        ),
        (
            LocalSubjectAccess,
            with(r#","user":"u""#).replacen('{', r#"{"metadata":{"namespace":"b"},"#, 1),
        ),
        // serde reads arrays as structs.
        (SubjectAccess, r#"[null,null,null,[null,null,"u",[],{},null],null]"#.to_owned()),
        (SelfSubjectAccess, r#"{"spec":{"resourceAttributes":["a","get"]}}"#.to_owned()),
        (SelfSubjectAccess, with("").replacen('{', r#"{"status":[],"#, 1)),
        (SelfSubjectAccess, with("").replacen('{', r#"{"metadata":[null,null],"#, 1)),
        // The roles of each group cost work.
        (SubjectAccess, with(&format!(r#","groups":{:?}"#, ["g"; 33]))),
    ] {
        assert_eq!(spec(kind, &sent), None, "{sent}");
    }
    assert!(spec(SelfSubjectAccess, &with("")).is_some());
    assert!(spec(SubjectAccess, &with(r#","user":"u""#)).is_some());
    assert!(spec(LocalSubjectAccess, &with(r#","user":"u""#)).is_some());
}

#[test]
fn a_client_without_a_plain_name_has_no_manager_here() {
    let agent = |agent: &[u8]| {
        let agent = http::HeaderValue::from_bytes(agent).unwrap();
        manager(&HeaderMap::from_iter([(USER_AGENT, agent)]))
    };
    assert_eq!(agent(b"kubectl/v1.36 (linux)").as_deref(), Some("kubectl"));
    assert_eq!(agent(b"a b").as_deref(), Some("a b"));
    assert_eq!(agent(b"/x").as_deref(), Some("unknown"));
    assert_eq!(manager(&HeaderMap::new()).as_deref(), Some("unknown"));
    assert_eq!(agent(&[b'a'; 200]), Some("a".repeat(128)));
    assert_eq!(agent("jürgen/1".as_bytes()), None);
}

#[test]
fn a_text_is_escaped_as_in_go() {
    let text = "<&>\u{2028}\u{2029}\u{7f}\u{1}\t\"\\é";
    let attributes = serde_json::json!({"verb": text, "name": "<"});
    let sent = serde_json::json!({"spec": {"resourceAttributes": attributes}}).to_string();
    let spec = spec(SelfSubjectAccess, &sent).unwrap();
    let answer = String::from_utf8(answer(SelfSubjectAccess, Encoding::Json, &spec, NOW)).unwrap();
    let mut expected = Vec::new();
    crate::api::json_string::push_string(&mut expected, text.as_bytes());
    let expected = String::from_utf8(expected).unwrap();
    assert!(answer.contains(&format!(r#"{{"verb":{expected},"name":"\u003c"}}"#)), "{answer}");
}
