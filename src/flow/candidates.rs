//! The rules of a plan that are about one user, and which of them match a request, as in
//! kube-apiserver (`util/flowcontrol/rule.go`).

use crate::object::Names;
use crate::schema::{FlowSchema, PathRule, ResourceRule};
use weir_api::request_info::{NonResourceRequest, ResourceRequest, Verb};

/// The rules of a plan that are about one user.
#[derive(Debug)]
pub struct Candidates {
    resources: Box<[ResourceCandidate]>,
    paths: Box<[PathCandidate]>,
}

/// A resource rule, with what refuses most requests in one comparison.
#[derive(Debug)]
struct ResourceCandidate {
    /// A bit for each verb.
    verbs: u16,
    /// A bit for each resource, which others may share.
    resources: u64,
    schema: usize,
    rule: ResourceRule,
}

#[derive(Debug)]
struct PathCandidate {
    schema: usize,
    rule: PathRule,
}

impl Candidates {
    pub(super) fn new(schemas: &[FlowSchema], policies: &[(u32, u32)]) -> Self {
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for &(schema, policy) in policies {
            let schema = schema as usize;
            let policies = schemas.get(schema).map(|schema| &schema.policies);
            let Some(policy) = policies.and_then(|policies| policies.get(policy as usize)) else {
                continue;
            };
            resources.extend(policy.resources.iter().map(|rule| ResourceCandidate {
                verbs: verb_bits(&rule.verbs),
                resources: resource_bits(&rule.resources),
                schema,
                rule: rule.clone(),
            }));
            paths.extend(
                policy.paths.iter().map(|rule| PathCandidate { schema, rule: rule.clone() }),
            );
        }
        Self { resources: resources.into(), paths: paths.into() }
    }

    /// Returns the place of the first schema that matches a request for a resource.
    pub(super) fn find_for_resource(&self, verb: Verb, request: &ResourceRequest) -> Option<usize> {
        let (verb, resource) = (verb_bit(verb), resource_bit(&request.gvr.resource));
        let may_match = |candidate: &&ResourceCandidate| {
            candidate.verbs & verb != 0
                && candidate.resources & resource != 0
                && candidate.rule.matches(request)
        };
        self.resources.iter().find(may_match).map(|candidate| candidate.schema)
    }

    /// Returns the place of the first schema that matches a request for another path.
    pub(super) fn find_for_path(&self, request: &NonResourceRequest) -> Option<usize> {
        let mut matching = self.paths.iter().filter(|candidate| candidate.rule.matches(request));
        matching.next().map(|candidate| candidate.schema)
    }
}

impl ResourceRule {
    /// Whether it matches a request whose verb it lists.
    pub(super) fn matches(&self, request: &ResourceRequest) -> bool {
        let ResourceRequest { gvr, namespace, subresource, .. } = request;
        self.resources.any(|name| is_joined(name, &gvr.resource, subresource))
            && self.groups.any(|group| *group == *gvr.group)
            && match &**namespace {
                "" => self.cluster_scope,
                namespace => self.namespaces.any(|listed| listed == namespace),
            }
    }
}

impl PathRule {
    /// A listed path matches itself and all below it, whether or not it ends in `/*`.
    pub(super) fn matches(&self, request: &NonResourceRequest) -> bool {
        self.verbs.any(|verb| verb == request.verb)
            && self.paths.any(|path| {
                let prefix = path.strip_suffix('*').unwrap_or(path);
                let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
                let below = request.path.strip_prefix(prefix);
                path == request.path || below.is_some_and(|below| below.starts_with('/'))
            })
    }
}

/// Whether a name in a rule is `resource`, or `resource/subresource` for a subresource.
fn is_joined(name: &str, resource: &str, subresource: &str) -> bool {
    match name.strip_prefix(resource) {
        Some("") => subresource.is_empty(),
        Some(rest) => !subresource.is_empty() && rest.strip_prefix('/') == Some(subresource),
        None => false,
    }
}

fn verb_bit(verb: Verb) -> u16 {
    1 << verb as u16
}

fn verb_bits(names: &Names) -> u16 {
    match names {
        Names::All => u16::MAX,
        Names::Listed(names) => {
            let listed =
                VERBS.into_iter().filter(|verb| names.iter().any(|name| &**name == verb.as_str()));
            listed.map(verb_bit).fold(0, |bits, bit| bits | bit)
        }
    }
}

/// Returns a bit that few other resources have.
fn resource_bit(resource: &str) -> u64 {
    let (first, last) = (resource.as_bytes().first(), resource.as_bytes().iter().nth_back(1));
    let mixed = resource.len() + 7 * usize::from(*first.unwrap_or(&0));
    1 << ((mixed + 3 * usize::from(*last.unwrap_or(&0))) % 64)
}

fn resource_bits(names: &Names) -> u64 {
    match names {
        Names::All => u64::MAX,
        Names::Listed(names) => names.iter().fold(0, |bits, name| {
            let resource = name.split_once('/').map_or(&**name, |(resource, _)| resource);
            bits | resource_bit(resource)
        }),
    }
}

const VERBS: [Verb; 9] = [
    Verb::Get,
    Verb::List,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Proxy,
];
