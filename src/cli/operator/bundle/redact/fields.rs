//! The fields, labels and flags whose values are names, and those that never contain one.

use crate::cli::operator::bundle::redact::format::Format;
use crate::cli::operator::bundle::redact::names::NameKind;

/// Returns the kind of names that a field has: a field of a document or of a line of the log, a
/// label of a metric, or a flag.
pub(super) fn kind_of(field: &str) -> Option<NameKind> {
    if ["File", "_file", "-file"].iter().any(|end| field.ends_with(end)) || field == "file" {
        return Some(NameKind::Path);
    }
    let field: String =
        field.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>().to_lowercase();
    FIELDS.iter().find(|(_, fields)| fields.contains(&field.as_str())).map(|(kind, _)| *kind)
}

/// Whether a field has a word or a sentence of Weir's own, which no client chooses.
pub(super) fn is_fixed(field: &str) -> bool {
    FIXED.contains(&field)
}

/// Whether the values of a field are words of Kubernetes or of Weir, although a namespace or a user
/// may be called alike: a namespace `batch` says nothing about the group of a resource.
pub(super) fn is_vocabulary(format: Format, field: &str) -> bool {
    // In the log a reason may be a whole sentence, which may have names.
    VOCABULARY.contains(&field) || (field == "reason" && format != Format::JsonLines)
}

/// In lower case, without the signs between words: `user_agent`, `userAgent` and `user-agent` are
/// one field.
const FIELDS: [(NameKind, &[&str]); 6] = [
    (
        NameKind::User,
        &[
            "user",
            "users",
            "username",
            "usergroups",
            "groups",
            "subjects",
            "flow",
            "client",
            "owner",
            "allowednames",
            "impersonated",
        ],
    ),
    (NameKind::Agent, &["agent", "agents", "useragent", "useragents"]),
    (NameKind::Namespace, &["namespace", "namespaces"]),
    (
        NameKind::Object,
        &[
            "object",
            "objects",
            "key",
            "keys",
            "instance",
            "pod",
            "node",
            "context",
            "flowschema",
            "resourcenames",
        ],
    ),
    (
        NameKind::Address,
        &[
            "address",
            "addresses",
            "peer",
            "server",
            "servers",
            "listen",
            "adminlisten",
            "listeners",
            "endpoint",
            "endpoints",
            "static",
            "dns",
            "host",
            "hosts",
            "allowedhosts",
            "trustednetworks",
            "url",
            "dnsnames",
            "ipaddresses",
            "admin",
            "generatednames",
            "audiences",
        ],
    ),
    (
        NameKind::Path,
        &["path", "kubeconfig", "writekubeconfig", "config", "socket", "output", "uri"],
    ),
];

const VOCABULARY: [&str; 10] = [
    "group",
    "version",
    "resource",
    "verb",
    "cacheStatus",
    "cache_status",
    "representation",
    "state",
    "code",
    "le",
];

const FIXED: [&str; 16] = [
    "target",
    "level",
    "timestamp",
    "kind",
    "apiVersion",
    "time",
    "firstTime",
    "hash",
    "rule",
    "title",
    "weight",
    "fix",
    "fixes",
    "meaning",
    "setting",
    "origins",
];
