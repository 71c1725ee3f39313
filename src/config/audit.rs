//! `audit`: the log of the reads that Weir answers itself. Its policy is that of audit.k8s.io/v1
//! (apiserver `pkg/apis/audit/validation`), without the levels that Weir never logs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::config::kinds::{List, Member, Part, Required};
use crate::config::reader::Reader;
use crate::config::scalars::{OrNone, Parsed, Plain, Word, words};
use crate::config::section::section;

section! {
    /// The audit log of the reads that Weir answers itself.
    pub struct AuditConfig {
        /// none, stdout, or the absolute path of a file: appended to, mode 0600, opened again after
        /// a rotation moved it.
        restart output: Option<AuditOutput> = None, OrNone;

        /// When events arrive faster than they are written: blocking (requests wait) or dropping
        /// (events are dropped and counted).
        restart buffer: AuditBuffer = AuditBuffer::Blocking, Word;

        /// Like the API server's policy: the first rule that matches decides, and a request without
        /// a match is not logged. An empty list matches everything. Without any rules every request
        /// is logged.
        restart policy: AuditPolicy = AuditPolicy::default(), Part;
    }
}

section! {
    /// Which requests are logged.
    pub struct AuditPolicy {
        /// The first rule that matches a request decides.
        restart rules: Vec<AuditRule> = Vec::new(), List(Member);
    }
}

section! {
    /// A rule of the audit policy (audit.k8s.io/v1 Policy). An empty list matches everything. A
    /// rule with `namespaces` or `resources` matches only resource requests, one with
    /// `non_resource_urls` only other requests.
    pub struct AuditRule {
        /// None: the requests are not logged. Metadata: they are; bodies of requests and responses
        /// never are.
        restart level: AuditLevel = AuditLevel::Metadata, Required(Word);

        /// Names of users.
        restart users: Vec<String> = Vec::new(), List(Plain);

        /// Groups; the user is in one of them.
        restart user_groups: Vec<String> = Vec::new(), List(Plain);

        /// Verbs such as get, list and watch.
        restart verbs: Vec<String> = Vec::new(), List(Plain);

        /// Namespaces; an empty name stands for the cluster scope.
        restart namespaces: Vec<String> = Vec::new(), List(Plain);

        /// Resources by their group.
        restart resources: Vec<AuditResources> = Vec::new(), List(Member);

        /// Paths that are no resource's: /version, /openapi/*.
        restart non_resource_urls["nonResourceURLs"]: Vec<String> = Vec::new(),
            List(Parsed(non_resource_url));
    }
}

section! {
    /// The resources of one group (audit.k8s.io/v1 GroupResources).
    pub struct AuditResources {
        /// The API group; empty for the core group.
        restart group: String = String::new(), Parsed(group);

        /// Resources of the group, also with a subresource: pods, pods/log. Empty for all.
        restart resources: Vec<String> = Vec::new(), List(Plain);

        /// Names of objects. Empty for all.
        restart resource_names: Vec<String> = Vec::new(), List(Plain);
    }
}

impl AuditConfig {
    /// Refuses rules that match nothing. An output without rules logs everything: an empty log
    /// would surprise the operator.
    pub(super) fn check(&mut self, reader: &mut Reader<'_>) {
        for (index, rule) in self.policy.rules.iter().enumerate() {
            let path = format!("audit.policy.rules[{index}]");
            let is_about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            if is_about_resources && !rule.non_resource_urls.is_empty() {
                let message = "a rule matches either resources and namespaces, or other paths";
                reader.refuse(format!("{path}.nonResourceURLs"), message);
            }
            for (index, section) in rule.resources.iter().enumerate() {
                if !section.resource_names.is_empty() && section.resources.is_empty() {
                    let path = format!("{path}.resources[{index}].resourceNames");
                    reader.refuse(path, "needs resources beside it");
                }
            }
        }
        if self.output.is_some() && self.policy.rules.is_empty() {
            self.policy.rules.push(AuditRule::default());
        }
    }
}

/// The destination of audit events, one JSON object on each line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// A file, appended to, mode 0600; opened again after a rotation moved it.
    File(PathBuf),
}

impl FromStr for AuditOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stdout" => Ok(Self::Stdout),
            path if Path::new(path).is_absolute() && !path.ends_with('/') => {
                Ok(Self::File(path.into()))
            }
            _ => Err(format!("expected none, stdout or the absolute path of a file, not {text:?}")),
        }
    }
}

/// The value in the configuration file.
impl fmt::Display for AuditOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The behaviour when audit events arrive faster than they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditBuffer {
    /// Requests wait, and nothing is lost (kube-apiserver's default for log files).
    #[default]
    Blocking,
    /// Events are dropped, and counted.
    Dropping,
}

words!(AuditBuffer { Blocking: "blocking", Dropping: "dropping" });

/// Whether a request is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLevel {
    /// Not logged.
    None,
    /// User, request, time, source address and response code; never a body.
    #[default]
    Metadata,
}

words!(AuditLevel { None: "None", Metadata: "Metadata" });

fn group(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err("must be the name of a group, without a version".to_owned());
    }
    Ok(text.to_owned())
}

fn non_resource_url(text: &str) -> Result<String, String> {
    let stem = text.strip_suffix('*').unwrap_or(text);
    if text == "*" || (stem.starts_with('/') && !stem.contains('*')) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected a path such as /version or /openapi/*, not {text:?}"))
    }
}
